# SPDX-License-Identifier: Apache-2.0
"""Two hours in which each two minutes one worker is lost, in a way and a place drawn at random, of a job of two replicas that saves no
checkpoint."""
import collections
import os
import random
import time

import jobs
import lab
from failing import kill, logged, ranks, start
from lab import check, say

LONG = {"test_a_failure_each_two_minutes"}
LOGS = lab.STATE / "logs-two-hours"
NAME = "two-hours"
MINUTES = float(os.environ.get("WEIR_FAILING_MINUTES", "120"))
EACH = 120           # seconds from one failure to the next
CALM = 45            # last seconds of these, whose steps tell how fast the job is undisturbed
LEAST = 0.93         # of the undisturbed steps
KEPT_PLANS = 5
KINDS = "pods,services,configmaps,secrets,serviceaccounts,roles,rolebindings,poddisruptionbudgets,jobs,leases"


def delete(namespace, place, *how):
    return lambda: lab.kubectl("-n", namespace, "delete", "pod", ranks(namespace, NAME)[place], "--wait=false", *how)


def stop_for_a_while(namespace, place):
    """Longer than recovery.lostAfterSeconds."""
    def act():
        pod = lab.get(f"/api/v1/namespaces/{namespace}/pods/{ranks(namespace, NAME)[place]}")
        lab.signal_container(pod, "STOP")
        time.sleep(8)
        lab.signal_container(pod, "CONT")
    return act


def failures(namespace, place):
    return {"killed": kill(namespace, NAME, place), "deleted": delete(namespace, place), "stopped for 8 s": stop_for_a_while(namespace, place),
            "deleted at once": delete(namespace, place, "--grace-period=0", "--force")}


def objects(namespace):
    """How many of each kind the job has. Each plan is kept in a config map; of them the last ones stay, and are not counted."""
    names = lab.kubectl("-n", namespace, "get", KINDS, "-l", f"weir.dev/job-name={NAME}", "-o", "name").split()
    plans = [name for name in names if "-plan-" in name]
    check(len(plans) <= KEPT_PLANS, f"{len(plans)} plans are kept: {plans}")
    return collections.Counter(name.split("/")[0] for name in names if name not in plans)


def train(namespace):
    lab.shared_claim(namespace, "logs", LOGS)
    lab.apply(*jobs.replicas_maps("n4", 0.010, 0.020), namespace=namespace)
    body = jobs.replicas_job(NAME, 2, 10**7)
    body["spec"]["failurePolicy"] = {"maxRestarts": 0}   # a loss that the others make good does not count against it
    start(namespace, body, 20)


def whole(namespace):
    thing = lab.job(namespace, NAME)
    return lab.condition(thing, "Ready")["status"] == "True" and not thing["status"].get("recovery", {}).get("lostReplicas")


def test_a_failure_each_two_minutes(namespace):
    train(namespace)
    draw, calm_steps, calm_seconds, drawn, round_of = random.Random(24), 0, 0.0, [], []
    before, first, begin = objects(namespace), lab.reported_step(namespace, NAME), time.monotonic()
    while time.monotonic() - begin < 60 * MINUTES:
        since, place = time.monotonic(), draw.choice(sorted(ranks(namespace, NAME)))
        acts = failures(namespace, place)
        round_of = round_of or draw.sample(sorted(acts), len(acts))   # so a short run meets each kind, too
        what = round_of.pop()
        drawn.append(what)
        at = lab.reported_step(namespace, NAME)
        acts[what]()
        lab.wait_until(f"failure {len(drawn)}: steps after replica {place[0]} stage {place[1]} was {what}", lambda: lab.reported_step(namespace, NAME) > at, 60,
                       show=lambda: lab.show_condition(lab.job(namespace, NAME), "Ready"))
        lab.wait_until(f"failure {len(drawn)}: all replicas after replica {place[0]} stage {place[1]} was {what}", lambda: whole(namespace), EACH,
                       show=lambda: lab.show_condition(lab.job(namespace, NAME), "Degraded"))
        back = time.monotonic() - since
        time.sleep(max(0.0, since + EACH - CALM - time.monotonic()))
        calm_at, calm_from = lab.reported_step(namespace, NAME), time.monotonic()
        time.sleep(max(1.0, since + EACH - time.monotonic()))
        calm_steps, calm_seconds = calm_steps + lab.reported_step(namespace, NAME) - calm_at, calm_seconds + time.monotonic() - calm_from
        say(f"failure {len(drawn)}: replica {place[0]} stage {place[1]} was {what}: whole after {back:.1f} s, {lab.reported_step(namespace, NAME) - at} steps "
            f"in {time.monotonic() - since:.0f} s, {calm_steps / calm_seconds:.2f} in a calm second")
    steps, seconds = lab.reported_step(namespace, NAME) - first, time.monotonic() - begin
    share = steps / (seconds * calm_steps / calm_seconds)
    status = lab.job(namespace, NAME)["status"]
    told = (f"{len(drawn)} failures in {seconds / 60:.0f} min, {steps} steps: {100 * share:.1f} % of the undisturbed ones; "
            f"{status['restarts']} restarts, recovery {status['recovery']}")
    say(told)
    check(status["recovery"].get("lostSteps", 0) == 0, told)
    check(drawn.count("killed") <= status["restarts"] <= len(drawn), f"{drawn}: {told}")
    check(objects(namespace) == before, f"{before} have become {objects(namespace)}")
    found, twice = logged(LOGS, NAME)
    apart = [step for step, losses in found.items() if len(losses) > 1]
    missing = sorted(set(range(min(found), max(found))) - set(found))
    check(not twice and not apart and not missing, f"logged twice {twice[:3]}, other losses at {apart[:3]}, no loss of {missing[:3]}")
    check(share >= LEAST, told)
    return told
