# SPDX-License-Identifier: Apache-2.0
"""A node's port gets slow for good, and no order of micro-batches hides it: layers move to other workers, or the worker to another node."""
import datetime
import statistics
import time

import jobs
import lab
import live
from lab import check

RATE = "5mbit"            # a boundary tensor of 123 kB takes 0.2 s; a stage of two layers 60 ms, of three 90 ms
SHARE = 0.7               # of the step time before, at most
COOLDOWN = 90             # seconds of tier regroup: ten slow steps are judged well before its double is over
LONG = {"test_a_slow_port_is_left_alone_and_layers_move", "test_observe_proposes_the_same_and_changes_nothing",
        "test_a_regroup_that_does_not_help_is_judged_and_not_repeated", "test_replace_moves_the_worker_to_a_free_node_and_resumes"}
CHECKPOINTS = lab.STATE / "checkpoints-regroup"


def job(name, **more):
    return jobs.movable_job(name, COOLDOWN, **more)


def start(namespace, thing):
    name = thing["metadata"]["name"]
    lab.apply(*jobs.config_maps(text=False), thing, namespace=namespace)
    lab.kubectl("-n", namespace, "wait", "--for=condition=Ready", f"ppj/{name}", "--timeout=150s", timeout=160)
    lab.wait_until("link rates in Prometheus", lambda: lab.job(namespace, name)["status"].get("network", {}).get("worstLinks"), 60)
    return name


def shape_a_middle_node(namespace, name):
    node = lab.stage_pods(namespace, lab.job(namespace, name))[1][0]
    lab.script("shape.sh", node, "rate", RATE)
    return node


def note_of(namespace, reason, name):
    found = lab.events(namespace, reason, name)
    return found[-1]["note"] if found else ""


def regroups(namespace, name):
    return [e for e in lab.events(namespace, "PlanCreated", name) if "(Regroup)" in e["note"]]


def remove(namespace, name):
    lab.clear_links(*jobs.NODES)
    lab.kubectl("-n", namespace, "delete", "ppj", name, "--wait=false", ok=None)
    lab.wait_until("its pods are gone", lambda: not lab.pods(namespace, f"weir.dev/job-name={name}"), 90)


def test_a_slow_port_is_left_alone_and_layers_move(namespace):
    name = start(namespace, job("auto"))
    watch = live.Watch(namespace, name)
    stages, pods = len(watch.stages), live.pods_now(namespace, name)
    seen = live.take_port(watch, RATE)
    check("moved " in seen.note and " MB" in seen.note and "pause " in seen.note and "predicted +" in seen.note, seen.note)
    document = lab.plan_document(namespace, watch.job())
    check(document["state"] == "Move", f"state {document['state']}")
    check(live.pods_now(namespace, name) == pods, "a pod was made again")
    before, after = statistics.median(seen.slow), statistics.median(seen.fast)
    check(after <= SHARE * before, f"a step takes {after:.2f} s, before {before:.2f} s ({stages} stages, {seen.note})")
    predicted, measured = live.gains(seen.outcome)
    check(abs(measured - predicted) <= predicted / 3, f"the measured gain is not within a third of the predicted one: {seen.outcome}")
    tier = watch.job()["status"].get("adaptation", {}).get("regroup", {})
    check(tier.get("lastChangeTime"), f"status.adaptation.regroup: {tier}")
    remove(namespace, name)
    return f"{seen.node} shaped: {before:.2f} s -> {after:.2f} s ({len(seen.slow)} slow steps); {seen.note}; {seen.outcome}"


def test_observe_proposes_the_same_and_changes_nothing(namespace):
    name = start(namespace, job("observe", mode="Observe"))
    revision = lab.plan_of(lab.job(namespace, name))["revision"]
    shape_a_middle_node(namespace, name)
    note = lab.wait_until("event PlanProposed of the tier", lambda: [e["note"] for e in lab.events(namespace, "PlanProposed", name) if "moves " in e["note"]], 180)
    time.sleep(20)
    check(lab.plan_of(lab.job(namespace, name))["revision"] == revision, "the plan changed")
    check(not lab.events(namespace, "PlanRegrouped", name), "it regrouped")
    remove(namespace, name)
    return note[-1]


def test_a_regroup_that_does_not_help_is_judged_and_not_repeated(namespace):
    """The slow port moves along: as soon as the new ranks train, one of theirs is slow."""
    name = start(namespace, job("vain"))
    shape_a_middle_node(namespace, name)
    lab.wait_until("a plan with trigger Regroup", lambda: regroups(namespace, name), 180)
    lab.wait_until("it is applied", lambda: lab.plan_of(lab.job(namespace, name)).get("appliedRevision") == lab.plan_of(lab.job(namespace, name))["revision"], 60)
    lab.clear_links(*jobs.NODES)
    shape_a_middle_node(namespace, name)
    lab.wait_until("event PlanOutcome of the tier", lambda: [e for e in lab.events(namespace, "PlanOutcome", name) if live.OF_A_TIER in e["note"]], 240)
    seconds = lab.wait_until("a doubled cooldown", lambda: lab.job(namespace, name)["status"]["adaptation"]["regroup"].get("cooldownSeconds", 0) >= 2 * COOLDOWN, 30)
    count = len(regroups(namespace, name)) + len(lab.events(namespace, "PlanRolledBack", name))
    changed = datetime.datetime.fromisoformat(lab.job(namespace, name)["status"]["adaptation"]["regroup"]["lastChangeTime"])
    over = changed.timestamp() + 2 * COOLDOWN
    check(time.time() < over - 10, "the doubled cooldown is over before it was looked at")
    time.sleep(max(0, over - 10 - time.time()))   # beyond the plain cooldown, within the doubled one
    again = len(regroups(namespace, name)) + len(lab.events(namespace, "PlanRolledBack", name))
    check(again == count, f"{again - count} more within the doubled cooldown")
    remove(namespace, name)
    return f"{note_of(namespace, 'PlanOutcome', name)}; cooldown doubled: {bool(seconds)}"


def test_replace_moves_the_worker_to_a_free_node_and_resumes(namespace):
    """Two workers on the two A100 nodes, one on one of the two L4 nodes: that one's port is shaped, the other node is free."""
    lab.shared_claim(namespace, "ckpt-regroup", CHECKPOINTS)
    checkpoint = {"path": "/ckpt/replace", "intervalSteps": 5, "graceSeconds": 30}
    thing = job("replace", adaptation={"regroup": {"enabled": False}, "replace": {"enabled": True, "cooldownSeconds": 600, "minGainPercent": 30}},
                checkpoint=checkpoint, workerGroups=[jobs.group("a100", 2), jobs.group("l4", 1)])
    thing["spec"]["worker"]["volumes"].append({"name": "ckpt", "persistentVolumeClaim": {"claimName": "ckpt-regroup"}})
    thing["spec"]["worker"]["volumeMounts"].append({"name": "ckpt", "mountPath": "/ckpt"})
    name = start(namespace, thing)
    bad = [node for node, _, pod in lab.stage_pods(namespace, lab.job(namespace, name)) if "-l4-" in pod]
    check(bad, "the L4 worker has no stage")
    lab.wait_until("a checkpoint", lambda: lab.job(namespace, name)["status"].get("progress", {}).get("lastCheckpointStep", -1) > 0, 120)
    lab.script("shape.sh", bad[0], "rate", RATE)
    note = lab.wait_until("event WorkerReplaced", lambda: note_of(namespace, "WorkerReplaced", name), 420,
                          show=lambda: lab.show_condition(lab.job(namespace, name), "Degraded"))
    avoided = lab.job(namespace, name)["status"].get("avoidedNodes", [])
    check([a["node"] for a in avoided] == bad, f"avoidedNodes {avoided}")
    lab.wait_until("the worker on the other node", lambda: [p for p in lab.pods(namespace, f"weir.dev/job-name={name}")
                                                            if "-l4-" in p["metadata"]["name"] and p["spec"].get("nodeName") not in (None, *bad)], 120)
    lab.wait_until("training again", lambda: lab.plan_of(lab.job(namespace, name)).get("trigger") == "Restart"
                   and lab.condition(lab.job(namespace, name), "Ready")["reason"] == "Running", 180)
    check(not lab.events(namespace, "ProgressLost", name), "it started again at step 0")
    log = lab.kubectl("-n", namespace, "logs", lab.stage_pods(namespace, lab.job(namespace, name))[0][2])
    check("checkpoint loaded" in log, "no checkpoint was loaded")
    after = statistics.median(live.Watch(namespace, name).steps("replaced", 5))
    remove(namespace, name)
    return f"{note}; a step takes {after:.2f} s now"


def cleanup(_):
    lab.clear_links(*jobs.NODES)
