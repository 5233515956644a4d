# SPDX-License-Identifier: Apache-2.0
"""What lost workers cost a job of two replicas of two stages that saves no checkpoint: nothing, as long as another worker holds the same layers."""
import collections
import json
import time

import jobs
import lab
from lab import check

LOGS = lab.STATE / "logs-recovery"
NAME = "kept"
LONGEST = 60     # seconds from a loss to the next steps; about 8 on a quiet machine
RESTARTS = [0]   # of the job so far


def logged():
    """({step: losses that the last stages tell}, steps that one worker has logged twice)."""
    found, twice = collections.defaultdict(set), []
    for path in LOGS.glob(f"{NAME}.*.json"):
        own = set()
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            if entry.get("loss") is None:
                continue
            if entry["step"] in own:
                twice.append(f"{path.name}: {entry['step']}")
            own.add(entry["step"])
            found[entry["step"]].add(entry["loss"])
    return found, twice


def ranks(namespace):
    return {(r["replica"], r["stage"]): r["pod"] for r in lab.plan_document(namespace, lab.job(namespace, NAME))["ranks"]}


def steps_again(namespace, what, lose):
    """Loses workers, and waits for three more steps. Returns status.recovery and a sentence."""
    def status():
        return lab.job(namespace, NAME)["status"]
    before = lab.reported_step(namespace, NAME)
    known = status().get("recovery", {}).get("last")
    begin = time.monotonic()
    lose()
    RESTARTS[0] += 1
    lab.wait_until("the restart", lambda: status().get("restarts", 0) >= RESTARTS[0], LONGEST)
    last = lab.wait_until("the recovery", lambda: (last := status().get("recovery", {}).get("last")) != known and last, LONGEST,
                          show=lambda: lab.show_condition(lab.job(namespace, NAME), "Ready"))
    check(last["source"] != "Peers" or last["step"] >= before, f"{what}: step {before} was done, and training goes on at {last['step']}")
    lab.wait_until("three more steps", lambda: lab.reported_step(namespace, NAME) >= last["step"] + 3, LONGEST)
    lab.wait_until("all workers are ready", lambda: lab.condition(lab.job(namespace, NAME), "Ready")["status"] == "True", LONGEST)
    check(status()["restarts"] == RESTARTS[0], f"{what}: {status()['restarts']} restarts, expected {RESTARTS[0]}")
    return status()["recovery"], f"{what}: told after {time.monotonic() - begin:.1f} s, pause {last['pauseSeconds']} s"


def nothing_is_lost(namespace, what, lose):
    recovery, note = steps_again(namespace, what, lose)
    check(recovery["last"]["source"] == "Peers", f"{what}: {recovery}")
    check(recovery.get("lostSteps", 0) == 0, f"{what}: {recovery}")
    steps, twice = logged()
    check(not twice, f"{what}: done twice: {twice}")
    apart = {step: losses for step, losses in steps.items() if len(losses) > 1}
    check(not apart, f"{what}: the replicas tell other losses: {apart}")
    missing = set(range(min(steps), max(steps))) - set(steps)
    check(not missing, f"{what}: steps without a loss: {sorted(missing)[:5]}")
    return note


def kill(namespace, *places):
    def act():
        for place in places:
            pod = lab.get(f"/api/v1/namespaces/{namespace}/pods/{ranks(namespace)[place]}")
            lab.kill_container(pod["spec"]["nodeName"], pod)
    return act


def test_two_replicas_train_without_checkpoints(namespace):
    lab.shared_claim(namespace, "logs", LOGS)
    lab.apply(*jobs.replicas_maps("n4", 0.010, 0.020), namespace=namespace)
    body = jobs.replicas_job(NAME, 2, 1_000_000, args=[f"--loss-log=/logs/{NAME}.$(WEIR_POD_NAME).json"], times="fast")
    body["spec"]["failurePolicy"] = {"maxRestarts": 10}
    body["spec"]["worker"]["volumes"].append({"name": "logs", "persistentVolumeClaim": {"claimName": "logs"}})
    body["spec"]["worker"]["volumeMounts"].append({"name": "logs", "mountPath": "/logs"})
    lab.apply(body, namespace=namespace)
    lab.kubectl("-n", namespace, "wait", "--for=condition=Ready", f"ppj/{NAME}", "--timeout=120s", timeout=130)
    lab.wait_until("ten steps", lambda: lab.reported_step(namespace, NAME) >= 10, 60)


def test_a_killed_worker_costs_no_step(namespace):
    note = nothing_is_lost(namespace, "worker killed", kill(namespace, (1, 1)))
    [event] = lab.events(namespace, "Recovered", NAME)
    check("with what the workers hold, 0 steps are done again" in event["note"], event["note"])
    return f"{note}; {event['note']}"


def test_a_killed_coordinator_costs_no_step(namespace):
    return nothing_is_lost(namespace, "coordinator killed", kill(namespace, (0, 0)))


def test_a_deleted_pod_costs_no_step(namespace):
    pod = ranks(namespace)[(0, 1)]
    return nothing_is_lost(namespace, "pod deleted", lambda: lab.kubectl("-n", namespace, "delete", "pod", pod, "--grace-period=0", "--force"))


def test_a_stage_that_nobody_holds_any_more_is_told(namespace):
    recovery, note = steps_again(namespace, "both workers of stage 1 killed", kill(namespace, (0, 1), (1, 1)))
    check(recovery["last"]["source"] == "Start", f"{recovery}")
    check("no worker holds layers 4..7" in recovery["last"]["reason"], recovery["last"]["reason"])
    check(recovery["lostSteps"] >= 10, f"{recovery}")
    [event] = lab.events(namespace, "ProgressLost", NAME)
    check("no worker holds layers 4..7" in event["note"], event["note"])
    return f"{note}; {event['note']}"
