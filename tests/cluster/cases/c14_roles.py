# SPDX-License-Identifier: Apache-2.0
"""Two replicas, each in a rack of its own, and a tenant takes the path between the racks: sums over it hold up each step, transfers of
micro-batches hide behind compute. So the roles change: the stages of each replica lie in both racks then, and sums stay inside."""
import statistics

import jobs
import lab
import live
from lab import check

RATE = "20mbit"        # between the racks, each node's share; packed sums of a stage are 0.8 MB a step each way: 0.3 s
MICRO_BATCHES = 8      # of both replicas: a step computes for 0.3 s. A boundary tensor takes 49 ms at this rate, less than a stage
FORWARD, BACKWARD = 0.010, 0.020   # seconds of two layers; a stage has four
SHARE = 0.9            # of the step time before, at most
COOLDOWN = 90
LONG = {"test_a_slow_path_between_replicas_becomes_one_between_stages"}


def job(name):
    body = jobs.replicas_job(name, 2, 100000)
    spec = body["spec"]
    spec["batch"]["globalBatchSize"] = MICRO_BATCHES * jobs.MICRO_BATCH
    for group in spec["workerGroups"]:   # one class of device: the planner mixes none in a stage
        for entry in group["template"]["spec"]["containers"][0]["env"]:
            if entry["name"] == "WEIR_EMULATE_DEVICE":
                entry["value"] = "A100"
    spec["schedule"] = {"k": {"initial": 1}}
    spec["adaptation"]["regroup"] = {"enabled": True, "cooldownSeconds": COOLDOWN, "minGainPercent": 10}
    return body


def ranks_of(namespace, name):
    """(replica, stage) -> (node, address)"""
    return {(r["replica"], r["stage"]): (r["node"], r["ip"]) for r in lab.plan_document(namespace, lab.job(namespace, name))["ranks"]}


def divide(first, second):
    """What the nodes of each rack receive from the other one's gets RATE."""
    for rack, other in ((first, second), (second, first)):
        for node, _ in rack:
            lab.script("shape.sh", node, "share", RATE, *(address for _, address in other))


def test_a_slow_path_between_replicas_becomes_one_between_stages(namespace):
    [emulation, text] = jobs.config_maps(jobs.emulated_profile(FORWARD, BACKWARD))
    lab.apply(emulation, text, job("racks"), namespace=namespace)
    lab.kubectl("-n", namespace, "wait", "--for=condition=Ready", "ppj/racks", "--timeout=150s", timeout=160)
    watch = live.Watch(namespace, "racks")
    quiet, pods = watch.steps("quiet", 20), live.pods_now(namespace, "racks")
    ranks = ranks_of(namespace, "racks")
    racks = [[ranks[replica, stage] for stage in (0, 1)] for replica in (0, 1)]
    divide(*racks)
    begin, home = len(watch.times) + 1, [{node for node, _ in rack} for rack in racks]   # the step under way saw both

    def sums_stay_inside():
        now = ranks_of(namespace, "racks")
        inside = all({now[replica, stage][0] for replica in (0, 1)} in home for stage in (0, 1))
        return inside and lab.plan_of(watch.job()).get("appliedRevision") == lab.plan_of(watch.job())["revision"]
    watch.until("racks apart", f"sums inside the racks {home}", sums_stay_inside, 240)
    slow = [seconds for seconds, of in list(zip(watch.times, watch.revisions))[begin:] if of == watch.revisions[begin]]
    fast = watch.steps("roles changed", 15)
    note, outcome = (watch.until("roles changed", f"event {reason}", lambda r=reason, w=words: watch.note_of(r, w), 90)
                     for reason, words in (("PlanRegrouped", "moved"), ("PlanOutcome", live.OF_A_TIER)))
    check(live.pods_now(namespace, "racks") == pods, "a pod was made again")
    before, after = statistics.median(slow), statistics.median(fast)
    check(after <= SHARE * before, f"a step takes {after:.2f} s, before {before:.2f} s ({note})")
    predicted, measured = live.gains(outcome)
    check(measured >= predicted * 2 / 3, f"less than was promised: {outcome}")
    check(predicted >= measured / 2, f"for this network less was promised than measured: {outcome}")
    return f"{statistics.median(quiet):.2f} s, racks apart {before:.2f} s, roles changed {after:.2f} s; {note}; {outcome}"


def cleanup(_):
    lab.clear_links(*jobs.NODES)
