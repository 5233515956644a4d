# SPDX-License-Identifier: Apache-2.0
"""placement.mode Pinned: the operator chooses the nodes, close to each other, before the scheduler sees the pods."""

import jobs
import lab
from lab import check

RACK = "example.com/rack"
RACKS = {"n1": "a", "n2": "b", "n3": "b", "n4": "a"}   # nodes that follow each other by name are in different racks, but for two


def racks(namespace):
    for node, rack in RACKS.items():
        lab.kubectl("label", "node", node, "--overwrite", f"{RACK}={rack}")
    lab.apply(*jobs.config_maps(text=False), namespace=namespace)


def job(name, count):
    """`count` workers with a GPU each, so one on a node, of whatever type."""
    [group] = [entry for entry in jobs.gpt_job(name, 1)["spec"]["workerGroups"] if entry["name"] == "a100"]
    group.pop("nodeSelector")
    group["count"] = count
    return jobs.gpt_job(name, 15, text=False, micro_batches=4, workerGroups=[group], parallelism={"stages": count},
                        placement={"mode": "Pinned", "topologyKeys": [RACK]})


def chosen(namespace, name):
    """The node that each pod is bound to; fails when the operator did not ask for exactly that one, or never let it go."""
    nodes = []
    for pod in lab.pods(namespace, f"weir.dev/job-name={name}"):
        wanted = pod["spec"]["nodeSelector"].get("kubernetes.io/hostname")
        check(wanted == pod["spec"]["nodeName"], f"{pod['metadata']['name']} is on {pod['spec']['nodeName']}, wanted was {wanted}")
        check(not pod["spec"].get("schedulingGates"), f"{pod['metadata']['name']} still has a gate")
        nodes.append(pod["spec"]["nodeName"])
    return sorted(nodes)


def run(namespace, name):
    lab.kubectl("-n", namespace, "wait", "--for=condition=Complete", f"ppj/{name}", "--timeout=120s", timeout=130)
    return chosen(namespace, name)


def test_two_workers_share_a_rack(namespace):
    racks(namespace)
    lab.apply(job("near", 2), namespace=namespace)
    nodes = run(namespace, "near")
    check(nodes == ["n1", "n4"], f"on {nodes}, of racks {[RACKS[n] for n in nodes]}")
    lab.kubectl("-n", namespace, "delete", "ppj", "near")
    return f"on {nodes}, both in rack a"


def test_a_cordoned_node_sends_them_to_the_other_rack(namespace):
    racks(namespace)
    lab.kubectl("cordon", "n1")
    try:
        lab.apply(job("other", 2), namespace=namespace)
        nodes = run(namespace, "other")
    finally:
        lab.kubectl("uncordon", "n1")
    check(nodes == ["n2", "n3"], f"on {nodes}, of racks {[RACKS.get(n) for n in nodes]}")
    lab.kubectl("-n", namespace, "delete", "ppj", "other")
    return f"on {nodes}, both in rack b"


def test_without_room_no_pod_is_let_go_and_the_job_says_so(namespace):
    racks(namespace)
    lab.kubectl("cordon", "n4")
    try:
        lab.apply(job("wide", 4), namespace=namespace)
        lab.wait_until("PodsScheduled=False", lambda: lab.condition(lab.job(namespace, "wide"), "PodsScheduled")["status"] == "False", 60,
                       show=lambda: lab.show_condition(lab.job(namespace, "wide"), "PodsScheduled"))
        said = lab.condition(lab.job(namespace, "wide"), "PodsScheduled")["message"]
        check("Pinned" in said and "no set of nodes has room" in said, f"the condition says: {said}")
        gated = [pod for pod in lab.pods(namespace, "weir.dev/job-name=wide") if pod["spec"].get("schedulingGates")]
        check(len(gated) == 4, f"{len(gated)} of 4 pods are held back")
    finally:
        lab.kubectl("uncordon", "n4")
    nodes = run(namespace, "wide")
    check(nodes == sorted(RACKS), f"on {nodes}")
    lab.kubectl("-n", namespace, "delete", "ppj", "wide")
    return said
