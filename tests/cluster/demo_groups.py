# SPDX-License-Identifier: Apache-2.0
"""`tests/demo groups`: replicas that keep pace with a slow node, and layers that move away from a slow port."""
import collections
import re
import statistics
import time

import jobs
import lab
import live
from lab import say

NAMESPACE, PAIR, CHAIN = "demo", "pair", "chain"
SLOW_NODE = "n4"
FORWARD, BACKWARD = 0.010, 0.020   # seconds of two layers; a stage of PAIR has four
SHARES_LIMIT = 90                  # seconds from the first step: 16 steps are measured, then three ticks of 5 s
SETTLE = 15                        # seconds without another plan
RATE = "5mbit"                     # of the port: a boundary tensor of 123 kB takes 0.2 s, a stage of three layers 90 ms
SAMPLES = 16 * jobs.MICRO_BATCH    # a step, of all replicas together
COOLDOWN = 300                     # seconds of tier regroup
LIMITS = {"throughput": 1.3, "step": 0.7, "gain": 1 / 3}
Row = collections.namedtuple("Row", "job phase how times")


class Pair(live.Watch):
    """Two replicas: their micro-batch shares."""

    def shares(self):
        return lab.plan_document(self.namespace, self.job())["microBatches"]

    def details(self):
        return f"shares {listed(self.shares())}"


class Chain(live.Watch):
    """One pipeline: the nodes of its stages."""

    def details(self):
        return f"stages on {places(self)}"


def listed(shares):
    return ", ".join(map(str, shares))


def places(watch):
    return " ".join(node for node, _, _ in watch.stages)


def slow_node():
    """Shares follow speed. Gives the table's rows and the claims."""
    lab.apply(*jobs.replicas_maps(SLOW_NODE, FORWARD, BACKWARD), namespace=NAMESPACE)
    live.submit(NAMESPACE, jobs.replicas_job(PAIR, 2, 100000, times=jobs.PER_NODE), f"2 replicas x 2 stages; compute on {SLOW_NODE} takes twice as long")
    watch, pods = Pair(NAMESPACE, PAIR), live.pods_now(NAMESPACE, PAIR)
    equal, revision = watch.shares(), watch.revision
    watch.until("equal shares", "other shares", lambda: watch.revision > revision, SHARES_LIMIT)
    before = watch.times[1:]   # all of the first plan: the newest is seen before the next one is in force
    say(f"shares {listed(equal)} -> {listed(watch.shares())}")
    watch.until("shares by speed", "no further plan", lambda: time.monotonic() - watch.last_change > SETTLE, 120)
    after, shares = watch.steps("shares by speed"), watch.shares()
    notes = [event["note"] for event in lab.events(NAMESPACE, "PlanRetuned", PAIR)]
    ratio = statistics.median(before) / statistics.median(after)
    told = live.pods_now(NAMESPACE, PAIR) == pods
    live.print_events(NAMESPACE, PAIR)
    rows = [Row(PAIR, "equal shares", listed(equal), before), Row(PAIR, "shares by speed", listed(shares), after)]
    return rows, [
        (min(shares) < min(equal) and sum(shares) == sum(equal), f"shares moved to the fast replica: {listed(equal)} -> {listed(shares)}"),
        (ratio >= LIMITS["throughput"], f"throughput >= {LIMITS['throughput']} x that with equal shares: {ratio:.2f} x (1.42 is the most that shares can give)"),
        (told, "no pod of the replicas was made again"),
        (bool(notes), f"event PlanRetuned tells it: {(notes or ['no event'])[0]}"),
    ]


def slow_port():
    """Layers move away from a node whose port was taken for good. Likewise."""
    lab.apply(*jobs.config_maps(text=False), namespace=NAMESPACE)
    live.submit(NAMESPACE, jobs.movable_job(CHAIN, COOLDOWN), "4 workers, their layers where the planner wants them; 30 ms a layer")
    watch, pods = Chain(NAMESPACE, CHAIN), live.pods_now(NAMESPACE, CHAIN)
    quiet, begin = watch.steps("quiet", 10), places(watch)
    say(f"the port of {watch.stages[1][0]} gets {RATE}, for good")
    seen = live.take_port(watch, RATE)
    before, after = statistics.median(seen.slow), statistics.median(seen.fast)
    predicted, measured = live.gains(seen.outcome)
    live.print_events(NAMESPACE, CHAIN)
    rows = [Row(CHAIN, "quiet", begin, quiet), Row(CHAIN, f"port of {seen.node} taken", begin, seen.slow), Row(CHAIN, "regrouped", places(watch), seen.fast)]
    return rows, [
        (re.search(r"moved [\d.]+ MB, pause [\d.]+ s, predicted \+", seen.note), f"event PlanRegrouped tells bytes and pause: {seen.note}"),
        (after <= LIMITS["step"] * before, f"a step takes <= {LIMITS['step']} of what it took on the slow port: {after / before:.2f} ({after:.2f} s, {before:.2f} s)"),
        (abs(measured - predicted) <= LIMITS["gain"] * predicted, f"the measured gain is within a third of the predicted one: {seen.outcome}"),
        (live.pods_now(NAMESPACE, CHAIN) == pods, "no pod of the pipeline was made again: weights moved between live workers"),
    ]


def print_table(rows):
    print(f"\n{'job':<6} {'phase':<18} {'shares, or nodes of the stages':<32} {'steps':>5} {'median':>9} {'slowest':>9} {'samples/s':>9}")
    for row in rows:
        print(f"{row.job:<6} {row.phase:<18} {row.how:<32} {len(row.times):>5} {statistics.median(row.times) * 1000:>6.0f} ms "
              f"{max(row.times) * 1000:>6.0f} ms {SAMPLES / statistics.fmean(row.times):>9.1f}")


def play(reuse):
    """Both, one after the other. Returns how many claims do not hold."""
    live.set_up(NAMESPACE, reuse)
    rows, claims = slow_node()
    lab.kubectl("-n", NAMESPACE, "delete", "ppj", PAIR, "--timeout=60s")
    lab.wait_until("its GPUs are free", lambda: not lab.pods(NAMESPACE, f"weir.dev/job-name={PAIR}"), 60)
    more_rows, more_claims = slow_port()
    print_table(rows + more_rows)
    return live.print_claims(claims + more_claims)
