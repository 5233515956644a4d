# SPDX-License-Identifier: Apache-2.0
"""Claims that hold each time, not most times: what a fresh job is told before its first step, and who hangs, twenty of each; and
that of quiet jobs nothing is told for half an hour."""
import os
import random
import statistics
import time

import jobs
import lab
import live
from lab import check, say

LONG = {"test_fresh_jobs_take_what_they_were_told", "test_the_one_that_hangs_is_named", "test_of_quiet_jobs_nothing_is_told"}   # 8, 20 and 31 min
TIMES = 20
QUIET_SECONDS = 60 * float(os.environ.get("WEIR_QUIET_MINUTES", "30"))
NEAR = 0.10          # of the measured step
MOST_LATE = 0.010    # seconds of the p99 of wake-ups, above which a machine is too busy to judge
STALLED_SECONDS = 75


def a_fresh_job(draw):
    """Spec, profile and slow port (node, Mbit/s) or None of one start: what a user may bring, with the start's own measurements."""
    forward, ratio = draw.uniform(0.010, 0.025), draw.choice([2, 2, 3])
    profile = jobs.emulated_profile(forward, ratio * forward, weights=draw.choice([0, 0.5]))
    # Without the arithmetic: that of four ranks on two cores can take longer than the ops that they emulate.
    body = jobs.gpt_job("fresh", 100000, text=False, micro_batches=draw.choice([4, 8, 16]), args=("--emulate-idle",))
    body["spec"]["adaptation"]["mode"] = "Observe"
    body["spec"]["schedule"] = {"k": {"initial": draw.choice([1, 2])}}
    slow = draw.choice([None, None, 40, 80, 200])
    return body, profile, slow and (draw.choice(jobs.NODES), slow)


def remove(namespace, name):
    lab.kubectl("-n", namespace, "delete", "ppj", name, "--timeout=60s")
    lab.wait_until("its pods are gone", lambda: not lab.pods(namespace, f"weir.dev/job-name={name}"), 60)


def test_fresh_jobs_take_what_they_were_told(namespace):
    """The step that the first plan predicts, against the median of the steps that follow."""
    draw, off = random.Random(7), []
    for i in range(TIMES):
        body, profile, slow = a_fresh_job(draw)
        if slow:
            lab.script("shape.sh", slow[0], "rate", f"{slow[1]}mbit")
        lab.apply(*jobs.config_maps(profile, text=False), body, namespace=namespace)
        lab.wait_until("a first step", lambda: lab.reported_step(namespace, "fresh") > 1, 120)
        plan = lab.plan_of(lab.job(namespace, "fresh"))
        check(plan["revision"] == 1, f"the plan changed: {plan}")
        told = float(plan["predictedStepSeconds"])
        took = statistics.median(live.Watch(namespace, "fresh").steps("", 9))
        late = lab.lateness_p99(namespace, "fresh", 10) or 0
        off.append((told / took - 1, late))
        spec = body["spec"]
        say(f"start {i + 1}: told {1000 * told:.0f} ms, took {1000 * took:.0f}: {100 * off[-1][0]:+.1f} %; "
            f"M {spec['batch']['globalBatchSize'] // jobs.MICRO_BATCH}, k {spec['schedule']['k']['initial']}, port {slow}, "
            f"{plan.get('schedule')} late by {1000 * late:.1f} ms")
        remove(namespace, "fresh")
        lab.clear_links(*jobs.NODES)
    calm = [error for error, late in off if late <= MOST_LATE]
    if len(calm) < TIMES // 2:
        raise lab.Skip(f"compute woke up late in {TIMES - len(calm)} of {TIMES} starts")
    worst = max(calm, key=abs)
    check(abs(worst) <= NEAR, f"told {100 * worst:+.1f} % beside a step; all: {' '.join(f'{100 * error:+.1f}' for error, _ in off)} %")
    return f"{len(calm)} of {TIMES} starts could be judged, the worst {100 * worst:+.1f} %"


def test_the_one_that_hangs_is_named(namespace):
    """SIGSTOP of a worker at a random moment, twenty times: Ready names that rank each time, nobody is made again, training goes on."""
    draw, seconds = random.Random(11), []
    body = jobs.gpt_job("hangs", 100000, text=False, micro_batches=8)
    body["spec"]["adaptation"]["mode"] = "Off"
    lab.apply(*jobs.config_maps(jobs.emulated_profile(0.010, 0.020), text=False), body, namespace=namespace)
    lab.wait_until("a first step", lambda: lab.reported_step(namespace, "hangs") > 3, 120)
    for i in range(TIMES):
        thing = lab.job(namespace, "hangs")
        places = lab.stage_pods(namespace, thing)   # not worker 0, whose process coordinates: c08 stops that
        stage = draw.choice([at for at, (_, _, name) in enumerate(places) if name != "hangs-a100-0"])
        node, _, name = places[stage]
        pod = next(one for one in lab.pods(namespace, "weir.dev/job-name=hangs") if one["metadata"]["name"] == name)
        time.sleep(draw.uniform(0, 1))   # anywhere in a step
        begin = time.monotonic()
        lab.signal_container(pod, "STOP")
        try:
            ready = lab.wait_until("Ready tells the stall", lambda: next(
                (one for one in [lab.condition(lab.job(namespace, "hangs"), "Ready")] if one["reason"] == "Stalled"), None), STALLED_SECONDS)
            seconds.append(time.monotonic() - begin)
        finally:
            lab.signal_container(pod, "CONT")
        say(f"hang {i + 1}: stage {stage} on {node}, after {seconds[-1]:.0f} s: {ready['message']}")
        check(f"rank {stage} (replica 0, stage {stage}, {node})" in ready["message"], f"not rank {stage} on {node}: {ready['message']}")
        lab.wait_until("Running again", lambda: lab.condition(lab.job(namespace, "hangs"), "Ready")["reason"] == "Running", 90)
        step = lab.reported_step(namespace, "hangs")
        lab.wait_until("steps come again", lambda: lab.reported_step(namespace, "hangs") > step + 1, 60)
    check(lab.job(namespace, "hangs")["status"].get("restarts", 0) == 0, "a worker that came back was made again")
    remove(namespace, "hangs")
    return f"{TIMES} of {TIMES}, told after {min(seconds):.0f} to {max(seconds):.0f} s"


def test_of_quiet_jobs_nothing_is_told(namespace):
    """Emulated compute over four nodes, and real compute beside it, on a network that nobody else uses: no change, no Degraded."""
    real = jobs.gpt_job("real", 10**7, text=False, micro_batches=4, workerGroups=[{"name": "cpu", "count": 2}], parallelism={"stages": 2})
    real["spec"]["worker"].update(volumes=[], volumeMounts=[])
    maps = jobs.config_maps(text=False)
    lab.apply(*maps, jobs.gpt_job("emulated", 10**7, text=False), real, namespace=namespace)
    names = ("emulated", "real")
    for name in names:
        lab.wait_until(f"{name} trains", lambda: lab.reported_step(namespace, name) > 1, 150)
    revisions = {name: lab.plan_of(lab.job(namespace, name))["revision"] for name in names}
    began, told, end = time.monotonic(), [], time.monotonic() + QUIET_SECONDS
    while time.monotonic() < end:
        time.sleep(5)
        for name in names:
            thing = lab.job(namespace, name)
            seen = [f"{one['type']}/{one['reason']}: {one['message']}" for one in thing["status"]["conditions"]
                    if (one["type"], one["status"]) in (("Degraded", "True"), ("Ready", "False"))]
            if lab.plan_of(thing)["revision"] != revisions[name]:
                revisions[name] = lab.plan_of(thing)["revision"]
                seen.append(f"plan {revisions[name]}: {lab.plan_of(thing)}")
            for one in seen:
                if not told or told[-1][1:] != (name, one):
                    told.append((time.monotonic() - began, name, one))
                    say(f"after {told[-1][0]:.0f} s: {name}: {one}")
    steps = {name: lab.reported_step(namespace, name) for name in names}
    for name in names:
        say(f"{name}: events {sorted({event['reason'] for event in lab.events(namespace, name=name)})}")
        remove(namespace, name)
    check(not told, f"{len(told)} things were told; the first after {told[0][0]:.0f} s: {told[0][1:]}" if told else "")
    return f"{QUIET_SECONDS / 60:.0f} min, steps {steps}"


def cleanup(_):
    lab.clear_links(*jobs.NODES)
