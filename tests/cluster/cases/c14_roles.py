# SPDX-License-Identifier: Apache-2.0
"""Two replicas, each in a rack of its own, and a tenant takes the path between the racks: sums over it hold up each step, transfers of
micro-batches hide behind compute. So the roles change: the stages of each replica lie in both racks then, and sums stay inside."""
import statistics

import jobs
import lab
import live
from lab import check

RATE = "5mbit"         # between the racks, each node's share; the sums of a stage are 1.1 MB a step each way: 1.8 s
SEQUENCE = 16          # bytes of text a sample: a boundary tensor is 16 kB, 27 ms at this rate, half of what a stage computes
FORWARD, BACKWARD = 0.010, 0.020   # seconds of two layers; a stage has four
SHARE = 0.7            # of the step time before, at most
COOLDOWN = 90
LONG = {"test_a_slow_path_between_replicas_becomes_one_between_stages"}


def job(name):
    body = jobs.replicas_job(name, 2, 100000)
    spec = body["spec"]
    arguments = spec["worker"]["args"]
    arguments[:] = [f"--seq={SEQUENCE}" if a.startswith("--seq=") else a for a in arguments]
    spec["schedule"] = {"k": {"initial": 1}}
    spec["adaptation"]["regroup"] = {"enabled": True, "cooldownSeconds": COOLDOWN, "minGainPercent": 10}
    return body


def profile():
    thing = jobs.emulated_profile(FORWARD, BACKWARD)
    for node in thing["nodes"]:
        node["outputBytesPerSample"] = SEQUENCE * 64 * 4
    return thing


def ranks_of(namespace, name):
    """(replica, stage) -> (node, address)"""
    return {(r["replica"], r["stage"]): (r["node"], r["ip"]) for r in lab.plan_document(namespace, lab.job(namespace, name))["ranks"]}


def divide(first, second):
    """What the nodes of each rack receive from the other one's gets RATE."""
    for rack, other in ((first, second), (second, first)):
        for node, _ in rack:
            lab.script("shape.sh", node, "share", RATE, *(address for _, address in other))


def test_a_slow_path_between_replicas_becomes_one_between_stages(namespace):
    [emulation, text] = jobs.config_maps(profile())
    lab.apply(emulation, text, job("racks"), namespace=namespace)
    lab.kubectl("-n", namespace, "wait", "--for=condition=Ready", "ppj/racks", "--timeout=150s", timeout=160)
    watch, pods = live.Watch(namespace, "racks"), live.pods_now(namespace, "racks")
    quiet = watch.steps("quiet", 20)
    ranks = ranks_of(namespace, "racks")
    racks = [[ranks[replica, stage] for stage in (0, 1)] for replica in (0, 1)]
    divide(*racks)
    seen = live.until_regrouped(watch, "racks apart", "the path between racks")
    home = [{node for node, _ in rack} for rack in racks]
    now = ranks_of(namespace, "racks")
    for stage in (0, 1):
        nodes = {now[replica, stage][0] for replica in (0, 1)}
        check(nodes in home, f"stage {stage} sums between {sorted(nodes)}, the racks are {[sorted(h) for h in home]}; {seen.note}")
    check(live.pods_now(namespace, "racks") == pods, "a pod was made again")
    before, after = statistics.median(seen.slow), statistics.median(seen.fast)
    check(after <= SHARE * before, f"a step takes {after:.2f} s, before {before:.2f} s ({seen.note})")
    predicted, measured = live.gains(seen.outcome)
    check(abs(measured - predicted) <= predicted / 3, f"the measured gain is not within a third of the predicted one: {seen.outcome}")
    return f"{statistics.median(quiet):.2f} s, racks apart {before:.2f} s, roles changed {after:.2f} s; {seen.note}; {seen.outcome}"


def cleanup(_):
    lab.clear_links(*jobs.NODES)
