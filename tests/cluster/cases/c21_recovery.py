# SPDX-License-Identifier: Apache-2.0
"""What lost workers cost a job that saves no checkpoint: of two replicas of two stages nothing, as long as another worker holds the same layers; of one
replica a few steps, which all do again from copies in memory, of a neighbor where a pod is gone. A spare need not be made first."""
import contextlib
import functools
import re
import time

import lab
import recovering
from failing import kill, logged, ranks
from lab import check
from recovering import LOGS, LONGEST, MOST_LOST, copies_come, prepare, spares_are, standing_still, train

NAME, ALONE, IDLE, SPARED = "kept", "alone", "idle", "spared"   # jobs of two replicas, of one, of one with an idle worker, with spares
LONG = {"test_an_idle_worker_takes_the_place_of_a_lost_one", "test_a_worker_that_has_time_to_end_hands_over_to_an_idle_one",   # as spares do
        "test_a_worker_that_ends_twice_goes_to_a_spare", "test_a_link_that_stays_dead_costs_no_step_and_a_worker_is_made_again"}
steps_again = functools.partial(recovering.steps_again, name=NAME)
nothing_is_lost = functools.partial(recovering.nothing_is_lost, name=NAME)
few_are_done_again = functools.partial(recovering.few_are_done_again, name=ALONE)


def beside_the_coordinator(namespace):
    """(replica, pod) of a worker that is not the coordinator; after a loss that one may have any place."""
    coordinates = recovering.coordinator(namespace, NAME)
    return next((replica, pod) for (replica, _), pod in sorted(ranks(namespace, NAME).items()) if pod != coordinates)


def test_two_replicas_train_without_checkpoints(namespace):
    prepare(namespace)
    train(namespace, NAME, 2, "fast", args=["--dead-after=8"])


def test_a_killed_worker_costs_no_step(namespace):
    note = nothing_is_lost(namespace, "worker killed", kill(namespace, NAME, (1, 1)))
    [event] = lab.events(namespace, "Recovered", NAME)
    check("with what the workers hold, 0 steps are done again" in event["note"], event["note"])
    return f"{note}; {event['note']}"


def test_a_killed_coordinator_costs_no_step(namespace):
    return nothing_is_lost(namespace, "coordinator killed", kill(namespace, NAME, (0, 0)))


def test_a_deleted_pod_costs_no_step(namespace):
    pod = ranks(namespace, NAME)[(0, 1)]
    return nothing_is_lost(namespace, "pod deleted", lambda: lab.kubectl("-n", namespace, "delete", "pod", pod, "--grace-period=0", "--force"), counted=False)


def test_a_pod_without_a_node_stops_nobody(namespace):
    """The other replica trains on with the whole batch until a node takes the new pod."""
    replica, pod = beside_the_coordinator(namespace)
    node = lab.get(f"/api/v1/namespaces/{namespace}/pods/{pod}")["spec"]["nodeName"]
    seen = {}

    def lose():
        begin = time.monotonic()
        lab.kubectl("cordon", node)   # the other nodes have no device left
        try:
            lab.kubectl("-n", namespace, "delete", "pod", pod, "--grace-period=0", "--force")
            lab.wait_until("one replica trains", lambda: lab.job(namespace, NAME)["status"].get("recovery", {}).get("lostReplicas") == [replica], LONGEST)
            step = lab.reported_step(namespace, NAME)
            lab.wait_until("steps without it", lambda: lab.reported_step(namespace, NAME) >= step + 3, LONGEST)
            job = lab.job(namespace, NAME)
            for kind, status, reason in (("Ready", "True", "Running"), ("Degraded", "True", "ReducedReplicas"), ("PodsScheduled", "False", "Unschedulable")):
                now = lab.condition(job, kind)
                check((now["status"], now["reason"]) == (status, reason), f"{kind} while a pod has no node: {now}")
            seen["steps"], seen["seconds"] = lab.reported_step(namespace, NAME) - step, time.monotonic() - begin
        finally:
            lab.kubectl("uncordon", node)

    note = nothing_is_lost(namespace, "pod deleted, its node cordoned", lose, counted=False)
    two_replicas_train(namespace)
    [reduced], [restored] = lab.events(namespace, "ReplicasReduced", NAME)[-1:], lab.events(namespace, "ReplicasRestored", NAME)[-1:]
    check(f"1 of 2 replicas train on without replica {replica}" in reduced["note"], reduced["note"])
    check("2 of 2 replicas train" in restored["note"], restored["note"])
    return f"{note}, {seen['steps']} steps seen in {seen['seconds']:.0f} s without it; {reduced['note']}"


def test_a_drained_node_costs_two_replicas_no_step(namespace):
    """Nobody else can take its place until the node does again: the other replica trains on."""
    _, pod = beside_the_coordinator(namespace)
    node = lab.get(f"/api/v1/namespaces/{namespace}/pods/{pod}")["spec"]["nodeName"]

    def drain():
        try:
            lab.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", f"--pod-selector=weir.dev/job-name={NAME}", "--timeout=60s", timeout=90)
        finally:
            lab.kubectl("uncordon", node)

    return nothing_is_lost(namespace, "node drained", drain, counted=False)


def test_a_node_that_stands_still_costs_two_replicas_no_step(namespace):
    """The other replica trains on."""
    replica, name = beside_the_coordinator(namespace)

    def stand_still():
        with standing_still(namespace, name):
            lab.wait_until("one replica trains", lambda: lab.job(namespace, NAME)["status"].get("recovery", {}).get("lostReplicas") == [replica], LONGEST)
            step = lab.reported_step(namespace, NAME)
            lab.wait_until("steps without it", lambda: lab.reported_step(namespace, NAME) >= step + 3, LONGEST)

    note = nothing_is_lost(namespace, "node stands still", stand_still, counted=False)
    two_replicas_train(namespace)
    return note


@contextlib.contextmanager
def dead_link(namespace):
    """The stages of a replica without worker 0 do not reach each other, but the coordinator reaches both. Yields that replica once the other one
    trains on alone, and the seconds until then; the link is back at the end."""
    at = ranks(namespace, NAME)
    replica = next(r for r in (0, 1) if not any(at[(r, stage)].startswith(f"{NAME}-a100-0") for stage in (0, 1)))
    first, second = (lab.get(f"/api/v1/namespaces/{namespace}/pods/{at[(replica, stage)]}") for stage in (0, 1))
    ends = ((first["spec"]["nodeName"], second["status"]["podIP"]), (second["spec"]["nodeName"], first["status"]["podIP"]))
    begin = time.monotonic()
    for node, address in ends:
        lab.script("shape.sh", node, "cut", address)
    try:
        lab.wait_until("one replica trains", lambda: lab.job(namespace, NAME)["status"].get("recovery", {}).get("lostReplicas") == [replica], LONGEST)
        yield replica, time.monotonic() - begin
    finally:
        for node, address in ends:
            lab.script("shape.sh", node, "mend", address)


def two_replicas_train(namespace):
    lab.wait_until("two replicas train", lambda: not lab.job(namespace, NAME)["status"]["recovery"].get("lostReplicas"), LONGEST)


def test_a_dead_link_costs_two_replicas_no_step(namespace):
    """The other replica trains on until the link is back."""
    seen = {}

    def cut():
        with dead_link(namespace) as (_, seen["seconds"]):
            step = lab.reported_step(namespace, NAME)
            lab.wait_until("steps without it", lambda: lab.reported_step(namespace, NAME) >= step + 3, LONGEST)
            seen["text"] = lab.condition(lab.job(namespace, NAME), "Degraded")["message"]

    note = nothing_is_lost(namespace, "link dead", cut, counted=False)
    two_replicas_train(namespace)
    check("gets no answer from the data port of pod" in seen["text"], seen["text"])
    return f"{note}; {seen['seconds']:.0f} s until the other replica trained, of which 8 s are --dead-after; {seen['text']}"


def test_a_link_that_stays_dead_costs_no_step_and_a_worker_is_made_again(namespace):
    """After two minutes the operator makes one end again: no other node has room, so on its own one, where it gets another address."""
    def cut():
        with dead_link(namespace) as (replica, _):
            last = ranks(namespace, NAME)[(replica, 1)]
            lab.wait_until("the restart", lambda: "LinkDead" in [one["reason"] for one in lab.job(namespace, NAME)["status"].get("restartReasons", [])], 180)
            two_replicas_train(namespace)
            check(ranks(namespace, NAME)[(replica, 1)] != last, f"{last} still has stage 1 of replica {replica}")

    note = nothing_is_lost(namespace, "link stays dead", cut, counted=False)
    [event] = lab.events(namespace, "NodeAvoided", NAME)
    check("where another one has room" in event["note"], event["note"])
    return f"{note}; {event['note']}"


def test_a_stage_that_nobody_holds_any_more_is_told(namespace):
    # The plans after lost pods may have cut the model elsewhere than the first one: a link that was measured then may look slow.
    first, last = lab.plan_document(namespace, lab.job(namespace, NAME))["stages"][1]["layers"]
    lacks = "no worker holds " + (f"layer {first}" if first == last else f"layers {first}..{last}")
    recovery, note = steps_again(namespace, "both workers of stage 1 killed", kill(namespace, NAME, (0, 1), (1, 1)))
    check(recovery["last"]["source"] == "Start", f"{recovery}")
    check(lacks in recovery["last"]["reason"], f"{lacks} is not in: {recovery['last']['reason']}")
    check(recovery["lostSteps"] >= 10, f"{recovery}")
    [event] = lab.events(namespace, "ProgressLost", NAME)
    check(lacks in event["note"], event["note"])
    return f"{note}; {event['note']}"


def test_one_replica_trains_without_checkpoints(namespace):
    prepare(namespace)
    train(namespace, ALONE, 1, "profile")


def test_a_killed_worker_without_a_peer_costs_a_few_steps(namespace):
    note = few_are_done_again(namespace, "worker killed", kill(namespace, ALONE, (0, 1)))
    [event] = lab.events(namespace, "Recovered", ALONE)
    check("from copies in memory" in event["note"], event["note"])
    return f"{note}; {event['note']}"


def test_a_killed_coordinator_without_a_peer_costs_a_few_steps(namespace):
    return few_are_done_again(namespace, "coordinator killed", kill(namespace, ALONE, (0, 0)))


def delete_pod(namespace, place, *how, name=ALONE):
    def copied():
        return "with copies on neighbors" in lab.job(namespace, name)["status"].get("recovery", {}).get("copies", "")
    step = lab.reported_step(namespace, name)
    lab.wait_until("copies after the last loss", lambda: copied() and lab.reported_step(namespace, name) >= step + 3 * MOST_LOST, LONGEST)
    pod = ranks(namespace, name)[place]
    return lambda: lab.kubectl("-n", namespace, "delete", "pod", pod, *how)


AT_ONCE = ("--grace-period=0", "--force")


def test_a_deleted_pod_without_a_peer_costs_a_few_steps(namespace):
    return few_are_done_again(namespace, "pod deleted", delete_pod(namespace, (0, 1), *AT_ONCE), counted=False)


def test_a_deleted_coordinator_without_a_peer_costs_a_few_steps(namespace):
    return few_are_done_again(namespace, "coordinator's pod deleted", delete_pod(namespace, (0, 0), *AT_ONCE), counted=False)


def test_a_pod_that_has_time_to_end_costs_no_step(namespace):
    return few_are_done_again(namespace, "pod told to end", delete_pod(namespace, (0, 1), "--wait=false"), counted=False, most=0)


def test_a_coordinator_that_has_time_to_end_costs_no_step(namespace):
    return few_are_done_again(namespace, "coordinator told to end", delete_pod(namespace, (0, 0), "--wait=false"), counted=False, most=0)


def test_all_processes_killed_cost_a_few_steps(namespace):
    return few_are_done_again(namespace, "all killed", kill(namespace, ALONE, (0, 0), (0, 1)))


def test_an_idle_worker_takes_the_place_of_a_lost_one(namespace):
    prepare(namespace)
    train(namespace, IDLE, 1, "profile", idle=1)
    [idle] = lab.plan_document(namespace, lab.job(namespace, IDLE))["idle"]
    note = few_are_done_again(namespace, "pod deleted, a worker idle", delete_pod(namespace, (0, 1), *AT_ONCE, name=IDLE), counted=False, name=IDLE)
    check(ranks(namespace, IDLE)[(0, 1)] == idle, f"{idle} was idle, stage 1 is at {ranks(namespace, IDLE)[(0, 1)]}")
    [event] = lab.events(namespace, "SpareUsed", IDLE)
    check(f"{idle} takes stage 1" in event["note"], event["note"])
    return note


def test_a_worker_that_has_time_to_end_hands_over_to_an_idle_one(namespace):
    lab.wait_until("the new pod is idle", lambda: lab.job(namespace, IDLE)["status"].get("workersSummary") == "3/3", LONGEST)
    return few_are_done_again(namespace, "pod told to end, a worker idle", delete_pod(namespace, (0, 1), "--wait=false", name=IDLE), counted=False,
                              most=0, name=IDLE, sources=("Peers", "Copies"))   # itself, if the plan comes in time


def train_with_spares(namespace):
    prepare(namespace)
    train(namespace, SPARED, 1, "profile", spares=2)   # of the two nodes of that type a worker has one
    lab.wait_until("the spare has joined", lambda: spares_are(namespace, SPARED, "1/2"), LONGEST)


def test_a_job_trains_without_waiting_for_its_spares(namespace):
    train_with_spares(namespace)
    status = lab.job(namespace, SPARED)["status"]
    [waits] = [group.get("pendingReason", "") for group in status["workerGroups"] if group["name"] == "l4"]
    check(re.match(f"spare {SPARED}-l4-s[01]: 0/4 nodes are available: ", waits), f"pendingReason: {waits}")
    check(status["workersSummary"] == "2/2", status["workersSummary"])
    check(lab.condition({"status": status}, "PodsScheduled")["status"] == "True", "PodsScheduled waits for a spare")
    nodes = [pod["spec"]["nodeName"] for pod in lab.pods(namespace, f"weir.dev/job-name={SPARED}") if "nodeName" in pod["spec"]]
    check(len(set(nodes)) == 3, f"a spare shares a node: {nodes}")
    return waits


def spare_takes_over(namespace, what, act, most=None, sources=("Copies",)):
    lost = ranks(namespace, SPARED)[(0, 1)]
    used = len(lab.events(namespace, "SpareUsed", SPARED))
    note = few_are_done_again(namespace, what, act, counted=False, most=most, name=SPARED, sources=sources)
    taken = ranks(namespace, SPARED)[(0, 1)]
    check(taken != lost, f"{lost} has stage 1 again")
    told = [event["note"] for event in lab.events(namespace, "SpareUsed", SPARED)]
    check(len(told) > used and f"{taken} takes stage 1 of {lost}" in told, f"{told}")
    alike = [[step, here, there] for step, here in logged(LOGS, SPARED)[0].items() if (there := logged(LOGS, ALONE)[0].get(step, here)) != here]
    check(not alike, f"other losses than a job with other failures: {alike[:3]}")
    return note


def test_a_spare_takes_the_place_of_a_deleted_pod(namespace):
    return spare_takes_over(namespace, "pod deleted, a spare", delete_pod(namespace, (0, 1), *AT_ONCE, name=SPARED))


def another_spare_and_copies(namespace):
    lab.wait_until("another spare", lambda: spares_are(namespace, SPARED, "1/2"), LONGEST)
    copies_come(namespace, SPARED)


def test_a_drained_node_costs_no_step(namespace):
    another_spare_and_copies(namespace)
    node = lab.get(f"/api/v1/namespaces/{namespace}/pods/{ranks(namespace, SPARED)[(0, 1)]}")["spec"]["nodeName"]
    selector = f"--pod-selector=weir.dev/job-name={SPARED}"
    try:
        return spare_takes_over(namespace, "node drained, a spare",
                                lambda: lab.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", selector, "--timeout=120s", timeout=150),
                                most=0, sources=("Peers", "Copies"))
    finally:
        lab.kubectl("uncordon", node)


def test_a_node_that_stands_still_goes_to_a_spare(namespace):
    """Without a spare the worker is waited for: 60 s after the control plane misses the kubelet it is made again."""
    another_spare_and_copies(namespace)
    with contextlib.ExitStack() as until_the_end:
        stop = standing_still(namespace, ranks(namespace, SPARED)[(0, 1)])
        return spare_takes_over(namespace, "node stands still, a spare", lambda: until_the_end.enter_context(stop))


def test_a_worker_that_ends_twice_goes_to_a_spare(namespace):
    """Its kubelet starts it again at once after the first end, in its pod, and would wait 10 s after the second."""
    train_with_spares(namespace)
    lab.wait_until("copies", lambda: lab.reported_step(namespace, SPARED) >= 10 + 3 * MOST_LOST, LONGEST)
    first = few_are_done_again(namespace, "killed, a spare", kill(namespace, SPARED, (0, 1)), name=SPARED)
    copies_come(namespace, SPARED)
    return f"{first}; {spare_takes_over(namespace, 'killed again', kill(namespace, SPARED, (0, 1)))}"
