# SPDX-License-Identifier: Apache-2.0
"""Jobs without checkpoints that lose workers: how they are started, and what a loss costs, from logs, status and events."""
import collections
import contextlib
import re
import time

import jobs
import lab
from failing import Outage, logged, start
from lab import check

LOGS = lab.STATE / "logs-recovery"
MOST_LOST = 8   # recovery.maxLostSteps
LONGEST = 60     # seconds from a loss to the next steps; about 8 on a quiet machine
RESTARTS = collections.Counter()   # of the jobs so far


@contextlib.contextmanager
def standing_still(namespace, name):
    """Kubelet and worker of this pod hang: the coordinator misses the worker's heartbeats (recovery.lostAfterSeconds)."""
    pod = lab.get(f"/api/v1/namespaces/{namespace}/pods/{name}")
    node = pod["spec"]["nodeName"]
    try:
        lab.signal_kubelet(node, "STOP")
        lab.signal_container(pod, "STOP")
        yield
    finally:
        lab.signal_container(pod, "CONT")
        lab.signal_kubelet(node, "CONT")


def steps_again(namespace, what, lose, name, counted=True):
    """Loses workers, and waits for three more steps. Returns status.recovery and a sentence. A pod that is gone before the operator
    has seen it end need not count as a restart."""
    def status():
        return lab.job(namespace, name)["status"]
    before = lab.reported_step(namespace, name)
    known = status().get("recovery", {}).get("last")
    begin = time.monotonic()
    with Outage(LOGS, name) as outage:
        lose()
        RESTARTS[name] += 1
        if counted:
            lab.wait_until("the restart", lambda: status().get("restarts", 0) >= RESTARTS[name], LONGEST)
        last = lab.wait_until("the recovery", lambda: (last := status().get("recovery", {}).get("last")) != known and last, LONGEST,
                              show=lambda: lab.show_condition(lab.job(namespace, name), "Ready"))
        told = time.monotonic() - begin
        check(last["source"] != "Peers" or last["step"] >= before, f"{what}: step {before} was done, and training goes on at {last['step']}")
        lab.wait_until("three more steps", lambda: lab.reported_step(namespace, name) >= last["step"] + 3, LONGEST)
    lab.wait_until("all workers are ready", lambda: lab.condition(lab.job(namespace, name), "Ready")["status"] == "True", LONGEST)
    if not counted:
        RESTARTS[name] = status()["restarts"]
    check(status()["restarts"] == RESTARTS[name], f"{what}: {status()['restarts']} restarts, expected {RESTARTS[name]}")
    return status()["recovery"], f"{what}: no step for {outage.seconds:.1f} s, told after {told:.1f} s, pause {last['pauseSeconds']} s"


def nothing_is_lost(namespace, what, lose, name, counted=True):
    recovery, note = steps_again(namespace, what, lose, name, counted)
    check(recovery["last"]["source"] == "Peers", f"{what}: {recovery}")
    check(recovery.get("lostSteps", 0) == 0, f"{what}: {recovery}")
    steps, twice = logged(LOGS, name)
    check(not twice, f"{what}: done twice: {twice}")
    apart = {step: losses for step, losses in steps.items() if len(losses) > 1}
    check(not apart, f"{what}: the replicas tell other losses: {apart}")
    missing = set(range(min(steps), max(steps))) - set(steps)
    check(not missing, f"{what}: steps without a loss: {sorted(missing)[:5]}")
    return note


def few_are_done_again(namespace, what, lose, name, counted=True, most=None, sources=("Copies",)):
    before = lab.job(namespace, name)["status"].get("recovery", {})
    lost, copies = before.get("lostSteps", 0), before.get("copies", "")
    recovery, note = steps_again(namespace, what, lose, name, counted)
    check(recovery["last"]["source"] in sources, f"{what}: {recovery}")
    told = re.match("each ([0-9]+) steps", copies)   # longer where copies would cost over 1 % of the time
    if most is None:
        most = max(MOST_LOST, 2 * int(told.group(1))) if told else MOST_LOST
    check(recovery.get("lostSteps", 0) - lost <= most, f"{what}: {recovery}, copies {copies}")
    steps, _ = logged(LOGS, name)
    apart = {step: losses for step, losses in steps.items() if len(losses) > 1}
    check(not apart, f"{what}: steps that were done again have other losses: {apart}")
    missing = set(range(min(steps), max(steps))) - set(steps)
    check(not missing, f"{what}: steps without a loss: {sorted(missing)[:5]}")
    return f"{note}, {recovery.get('lostSteps', 0) - lost} steps done again"


def train(namespace, name, replicas, times, idle=0, spares=0, args=(), group=1):
    """idle, spares: more workers of that group."""
    body = jobs.replicas_job(name, replicas, 1_000_000, times=times, args=args)
    if idle:
        for stage, one in enumerate(body["spec"]["workerGroups"]):
            one["stageRange"] = {"first": stage, "last": stage}
        body["spec"]["workerGroups"][group]["count"] += idle
    if spares:
        body["spec"]["workerGroups"][group]["spares"] = spares
    body["spec"]["failurePolicy"] = {"maxRestarts": 10}
    body["spec"]["recovery"] = {"maxLostSteps": MOST_LOST}
    start(namespace, body, 10)
    RESTARTS[name] = 0


def prepare(namespace):
    """Once for the file, whichever tests of it run; no job is left."""
    if not lab.get(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/logs"):
        lab.shared_claim(namespace, "logs", LOGS)
        lab.apply(*jobs.replicas_maps("n4", 0.010, 0.020), namespace=namespace)
    lab.kubectl("-n", namespace, "delete", "ppj", "--all")


def coordinator(namespace, name):
    """Its pod."""
    named = lab.job(namespace, name)["status"].get("coordinator", {}).get("pod")
    return named or lab.pods(namespace, f"weir.dev/job-name={name},weir.dev/worker-index=0")[-1]["metadata"]["name"]


def copies_come(namespace, name):
    step = lab.reported_step(namespace, name)
    lab.wait_until("copies", lambda: lab.reported_step(namespace, name) >= step + 3 * MOST_LOST, LONGEST)


def spares_are(namespace, name, text):
    return lab.job(namespace, name)["status"].get("recovery", {}).get("spares") == text
