# SPDX-License-Identifier: Apache-2.0
"""Weir's closed loop on a real Kubernetes of this machine: a tenant takes a link, k is retuned, the step time recovers.

usage: tests/demo [groups] [--short] [--keep] [--reuse]

Starts four nodes with pretend GPUs of two types and Prometheus, installs the operator by its Helm chart and applies a
PipelineJob: a small GPT on a public-domain text, cut into four stages. Then another tenant takes most of the link between
stages 1 and 2, and gives it back; first while the operator adapts (mode Auto), then with static 1F1B for comparison.
The workers train for real; the time of their compute is emulated (20 ms forward, 40 ms backward a micro-batch, half of it for
gradients of weights), so that two cores are enough. Needs root. Everything is built from source first: 15 to 30 min from nothing, 5 min later.
  groups    shows instead what k cannot repair: two replicas of two stages, one node twice as slow, get shares by their
            speed; then a pipeline one of whose nodes has its port taken for good moves its layers to the others, live.
            Ends with a table and the claims, too
  --short   only until the job trains, without a tenant: does everything work on this machine? 2 min less
  --keep    leaves cluster and job running and prints commands to look around
  --reuse   uses the cluster that an earlier --keep left
"""
import collections
import json
import math
import re
import statistics
import sys
import time

sys.dont_write_bytecode = True
import demo_groups  # noqa: E402
import jobs  # noqa: E402
import lab  # noqa: E402
import live  # noqa: E402
from lab import check, say  # noqa: E402

NAMESPACE, JOB = "demo", "gpt"
MICRO_BATCHES = 16
SAMPLES = MICRO_BATCHES * jobs.MICRO_BATCH
PREEMPTED = "40mbit"         # what is left of link 1-2, each way: 123 kB in 25 ms, a forward is 20 ms
REACTION_LIMIT = 60          # seconds from the preemption to a higher k
SETTLE = 25                  # seconds without a plan change: the tuner has decided
QUIET_TRIES = 3              # starts of the job, where other programs of the machine disturb the first phase
WEIGHTS = 0.5                # part of a backward; layers of large models are near it
LIMITS = {"auto_over_static": 0.75, "quiet_over_static": 0.95, "free_over_quiet": 1.10, "loss_fall": 2 / 3}
Phase = collections.namedtuple("Phase", "name forward backward k revision split steps late")


class Watch(live.Watch):
    """The job of the demo, and its link 1-2."""

    def details(self):
        forward, backward = link_rates()
        return f"link 1-2 {show_rate(forward)} / {show_rate(backward)}"

    def measure(self, name, count=live.MIN_STEPS):
        """A phase: so many whole steps from now on, and what the cluster says at their end."""
        started = time.monotonic()
        steps = self.steps(name, count)
        seconds = int(time.monotonic() - started)
        forward, backward = link_rates(seconds)
        late = lab.lateness_p99(NAMESPACE, JOB, seconds) or 0.0
        split = lab.plan_of(self.job()).get("split", "")
        return Phase(name, forward, backward, self.k, self.revision, split, steps, late)


def link_rates(window=10):
    """Mbit/s of link 1-2 per busy second by Prometheus, forward and backward; None if no transfer could be timed.

    On a free link most tensors arrive in one piece, which says nothing about its rate; such transfers are not counted.
    """
    selector = f'{{pipeline_namespace="{NAMESPACE}",pipeline_job="{JOB}",link="1-2"}}'
    query = (f"8e-6 * sum by (dir) (increase(weir_link_bytes_total{selector}[{window}s])) "
             f"/ (sum by (dir) (increase(weir_link_busy_seconds_total{selector}[{window}s])) > 0)")
    rates = {labels["dir"]: value for labels, value in lab.prometheus(query) if value == value}
    return rates.get("fwd"), rates.get("bwd")


def show_rate(rate):
    return "    - " if rate is None else f"{rate:5.0f} Mbit/s" if rate < 1000 else f"{rate / 1000:5.1f} Gbit/s"


def set_up(reuse):
    live.set_up(NAMESPACE, reuse)
    lab.apply(*jobs.config_maps(jobs.emulated_profile(weights=WEIGHTS)), namespace=NAMESPACE)
    submit()


def submit():
    live.submit(NAMESPACE, jobs.gpt_job(JOB, 100000, args=["--lr=0.003", "--warmup=10"], micro_batches=MICRO_BATCHES),
                f"{jobs.MODEL}, {jobs.STAGES} stages, M = {MICRO_BATCHES}, text of {jobs.text_file().stat().st_size // 1000} kB; "
                "compute emulated (20 ms forward, 40 ms backward, half of it for weights)")


def quiet_phase():
    """The first phase, and the watch of the job that trains in it: what follows compares with a plan that nothing has changed yet."""
    for _ in range(QUIET_TRIES):
        watch = Watch(NAMESPACE, JOB)
        revision = watch.revision
        watch.until("quiet, Auto", "the first steps", lambda: len(watch.times) >= 3, 60)
        phase = watch.measure("quiet, Auto")
        if watch.revision == revision:
            return watch, phase
        say(f"the plan changed from {revision} to {watch.revision}, k is {watch.k}: other programs of this machine disturb what is measured; the job starts anew")
        lab.kubectl("-n", NAMESPACE, "delete", f"ppj/{JOB}", timeout=60)
        lab.wait_until("its pods are gone", lambda: not lab.pods(NAMESPACE, f"weir.dev/job-name={JOB}"), 60)
        submit()
    raise lab.Failure(f"the plan changed in the quiet phase of {QUIET_TRIES} starts: this machine is too busy for the demo")


def preempt(watch):
    """A co-tenant's iperf3 runs through both nodes' ports; the job keeps a fixed part of them between the two pods."""
    first, second = watch.stages[1], watch.stages[2]
    address = lab.get(f"/api/v1/namespaces/{NAMESPACE}/pods/tenant-server")
    if not address:
        lab.apply(lab.iperf3_pod("tenant-server", second[0], "-s", "--forceflush"), namespace=NAMESPACE)
        lab.wait_until("the co-tenant's server listens", lambda: "listening" in lab.kubectl("-n", NAMESPACE, "logs", "tenant-server", ok=None).stdout, 30)
    address = lab.get(f"/api/v1/namespaces/{NAMESPACE}/pods/tenant-server")["status"]["podIP"]
    lab.share_link(PREEMPTED, first, second)
    lab.apply(lab.iperf3_pod("tenant", first[0], "-c", address, "--bidir", "-b", "150M", "-t", "3600", "-i", "0"), namespace=NAMESPACE)
    say(f"a co-tenant takes link 1-2 ({first[0]} <-> {second[0]}): {PREEMPTED} each way are left to the job")


def give_back(watch):
    lab.clear_links(watch.stages[1][0], watch.stages[2][0])
    lab.kubectl("-n", NAMESPACE, "delete", "pod", "tenant", "--grace-period=0", "--force", "--ignore-not-found", ok=None)
    say("the co-tenant gives the link back")


def adaptive_phases(watch, quiet):
    phases = [quiet]
    preempt(watch)
    begin, k, revision = time.monotonic(), watch.k, watch.revision
    watch.until("preempted, Auto", "a new plan", lambda: watch.revision > revision, REACTION_LIMIT)
    reaction = time.monotonic() - begin
    say(f"k {k} -> {watch.k} after {reaction:.0f} s")
    watch.until("preempted, Auto", "no further plan change", lambda: time.monotonic() - watch.last_change > SETTLE, 180)
    phases.append(watch.measure("preempted, Auto"))
    give_back(watch)
    began = time.monotonic()
    watch.until("free, Auto", "the tuner's decision", lambda: time.monotonic() - max(began, watch.last_change) > SETTLE, 180)
    phases.append(watch.measure("free, Auto"))
    return phases, reaction


def static_phases(watch):
    edit = {"spec": {"schedule": {"type": "OneFOneB", "dispatch": "Strict"}, "adaptation": {"mode": "Off"}}}
    say(f"kubectl patch: {json.dumps(edit['spec'])}")
    revision = watch.revision
    lab.kubectl("-n", NAMESPACE, "patch", f"ppj/{JOB}", "--type=merge", "-p", json.dumps(edit))
    watch.until("edit", "a new plan with k = 1", lambda: watch.revision > revision and watch.k == 1, 60)
    phases = [watch.measure("quiet, static")]
    preempt(watch)
    watch.measure("preempted, static")   # the first steps after the change, and the window of the rate
    phases.append(watch.measure("preempted, static"))
    give_back(watch)
    phases.append(watch.measure("free, static"))
    check(watch.revision == lab.plan_of(watch.job())["revision"] and watch.k == 1, "the plan changed although adaptation is Off")
    return phases


def median(phase):
    return statistics.median(phase.steps)


def print_table(adaptive, static):
    print(f"\n{'phase':<18} {'link 1-2 fwd / bwd':<24} {'k':>2} {'plan':>4} {'median':>9} {'p90':>9} {'samples/s':>9} {'late p99':>9}   gain over static 1F1B")
    for phase in adaptive + static:
        p90 = statistics.quantiles(phase.steps, n=10)[-1]
        same = next(p for p in static if p.name.split(",")[0] == phase.name.split(",")[0])
        gain = "" if phase in static else f"{100 * (median(same) / median(phase) - 1):+.1f} %"
        print(f"{phase.name:<18} {show_rate(phase.forward) + ' / ' + show_rate(phase.backward).strip():<24} {phase.k:>2} {phase.revision:>4} "
              f"{median(phase) * 1000:>6.0f} ms {p90 * 1000:>6.0f} ms {SAMPLES / statistics.fmean(phase.steps):>9.1f} {phase.late * 1000:>6.1f} ms   {gain}")
    print("late p99: how late emulated compute woke up; above some milliseconds this machine was busy with other things, and times are too long.")
    quiet, preempted, free = adaptive
    cost = 100 * (median(free) / median(quiet) - 1)
    if free.revision == preempted.revision:
        print(f"After the link was free k stayed at {free.k}: going back promised less than minGainPercent (3 %); "
              f"the step time is {cost:+.1f} % against the quiet phase.")
    else:
        print(f"After the link was free the tuner went from k = {preempted.k} (plan {preempted.revision}) to k = {free.k} (plan {free.revision}); "
              f"the step time is {cost:+.1f} % against the quiet phase.")


def verdict(watch, adaptive, static, reaction, before):
    """The claims, each with its numbers; returns how many do not hold."""
    quiet, preempted, free = adaptive
    job = watch.job()
    notes = [event.get("note", "") for event in lab.events(NAMESPACE, "PlanRetuned", JOB)]
    first, second = watch.stages[1][0], watch.stages[2][0]
    pair = f"(?:{first}->{second}|{second}->{first})"
    told = [note for note in notes if re.search(rf"k \d->\d.*link {pair} [\d.]+ ?(?:[GMk]bit/s)?->[\d.]+ ?[GMk]bit/s.*predicted \+[\d.]+ %", note)]
    ratio = median(preempted) / median(static[1])
    claims = [
        (watch.loss <= LIMITS["loss_fall"] * watch.first_loss, f"loss fell by a third at least: {watch.first_loss:.2f} -> {watch.loss:.2f}"),
        (quiet.k == 1, f"no plan change in the quiet phase: k = {quiet.k}, plan {quiet.revision}"),
        (reaction <= REACTION_LIMIT, f"a new plan within {REACTION_LIMIT} s of the preemption: {reaction:.0f} s, k = {preempted.k}"),
        (median(quiet) <= LIMITS["quiet_over_static"] * median(static[0]),
         f"quiet: Auto <= 0.95 x static 1F1B: {median(quiet) / median(static[0]):.2f} "
         f"({median(quiet) * 1000:.0f} against {median(static[0]) * 1000:.0f} ms), split: {quiet.split}"),
        (median(free) <= LIMITS["free_over_quiet"] * median(quiet),
         f"free within 10 % of quiet: {median(free) * 1000:.0f} ms against {median(quiet) * 1000:.0f} ms"),
        (ratio <= LIMITS["auto_over_static"], f"preempted: Auto <= 0.75 x static 1F1B: {ratio:.2f} "
                                              f"({median(preempted) * 1000:.0f} against {median(static[1]) * 1000:.0f} ms)"),
        (live.pods_now(NAMESPACE, JOB) == before and job["status"].get("restarts", 0) == 0, f"no pod restarted: {len(before)} pods, restarts {job['status'].get('restarts', 0)}"),
        (bool(told), f"event PlanRetuned names link, bandwidths and gain: {(told or notes or ['no event'])[0]}"),
    ]
    live.print_events(NAMESPACE, JOB)
    return live.print_claims(claims)


def show_links(reuse):
    set_up(reuse)
    watch, quiet = quiet_phase()
    before = live.pods_now(NAMESPACE, JOB)
    adaptive, reaction = adaptive_phases(watch, quiet)
    static = static_phases(watch)
    print_table(adaptive, static)
    return verdict(watch, adaptive, static, reaction, before)


def show_start(reuse):
    set_up(reuse)
    watch = Watch(NAMESPACE, JOB)
    before = live.pods_now(NAMESPACE, JOB)
    quiet = watch.measure("quiet, Auto", 5)
    return live.print_claims([
        (len(before) == jobs.STAGES, f"{jobs.STAGES} pods train {jobs.STAGES} stages: {len(before)} pods"),
        (len(quiet.steps) == 5, f"five steps, {statistics.median(quiet.steps) * 1000:.0f} ms each"),
        (watch.loss is not None and math.isfinite(watch.loss), f"the loss is a number: {watch.loss}"),
        (live.pods_now(NAMESPACE, JOB) == before, "no pod restarted"),
    ])


def main():
    arguments = set(sys.argv[1:])
    if arguments & {"-h", "--help"}:
        print(__doc__)
        return 0
    unknown = arguments - {"groups", "--short", "--keep", "--reuse"}
    if unknown or {"groups", "--short"} <= arguments:
        print(f"tests/demo: {'unknown: ' + ' '.join(sorted(unknown)) if unknown else '--short has no groups'}\n{__doc__}", file=sys.stderr)
        return 2
    reuse = "--reuse" in arguments
    if "groups" in arguments:
        return live.run(demo_groups.NAMESPACE, demo_groups.CHAIN, "--keep" in arguments, lambda: demo_groups.play(reuse))
    show = show_start if "--short" in arguments else show_links
    return live.run(NAMESPACE, JOB, "--keep" in arguments, lambda: show(reuse))


if __name__ == "__main__":
    lab.main_guard(main)
