# SPDX-License-Identifier: Apache-2.0
"""A node's port gets so slow that no order of micro-batches hides it: the operator proposes fewer bits, uses them once it may, and goes back."""
import math
import re
import statistics

import jobs
import lab
import live
from lab import check

RATE = "5mbit"     # a boundary tensor of 123 kB takes 0.2 s, in 8 bits 0.05 s; a stage 60 ms
RAW_BITS = 32
SHARE = 0.6        # of the step time before, at most
LONG = {"test_fewer_bits_are_proposed_then_used_then_given_up"}


def revision_of(watch):
    return lab.plan_of(watch.job())["revision"]


def codecs(watch):
    return lab.plan_of(watch.job()).get("codecs", "")


def bits_of_links(watch):
    """By link and direction, as their senders count them."""
    bits = {}
    for _, address, _ in watch.stages:
        for metric, labels, value in lab.scrape(address):
            if metric == "weir_link_codec_bits":
                bits[re.search('link="([^"]*)"', labels).group(1), re.search('dir="([^"]*)"', labels).group(1)] = value
    return bits


def bits_of_plan(text):
    """The same of codecs as in status.plan, "0-1:Int8/Raw, 1-2:Raw/Int8": forward/backward. Links that are raw both ways are not named."""
    bits = {"Raw": RAW_BITS, "BF16": 16, "Int8": 8.25}
    return {(link, direction): bits[codec] for part in text.split(", ") for link, pair in [part.split(":")]
            for direction, codec in zip(("fwd", "bwd"), pair.split("/"))}


def test_fewer_bits_are_proposed_then_used_then_given_up(namespace):
    name = "bits"
    thing = jobs.movable_job(name, 600, adaptation={"regroup": {"enabled": False}, "compress": {"enabled": False, "cooldownSeconds": 10}})
    lab.apply(*jobs.config_maps(text=False), thing, namespace=namespace)
    lab.kubectl("-n", namespace, "wait", "--for=condition=Ready", f"ppj/{name}", "--timeout=150s", timeout=160)
    lab.wait_until("link rates in Prometheus", lambda: lab.job(namespace, name)["status"].get("network", {}).get("worstLinks"), 60)
    watch = live.Watch(namespace, name)
    lab.script("shape.sh", watch.stages[1][0], "rate", RATE)

    proposed = watch.until("not allowed", "event PlanProposed", lambda: watch.note_of("PlanProposed", "compress link"), 150)
    check("set adaptation.compress.enabled to true" in proposed, proposed)
    before = statistics.median(watch.steps("not allowed", 6))
    check(not codecs(watch), f"codecs {codecs(watch)} although the job does not allow them")

    lab.kubectl("-n", namespace, "patch", "ppj", name, "--type=merge", "-p", '{"spec": {"adaptation": {"compress": {"enabled": true}}}}')
    note = watch.until("allowed", "event PlanCompressed", lambda: watch.note_of("PlanCompressed"), 120)
    watch.until("allowed", "the plan in force", lambda: codecs(watch) and watch.revision >= revision_of(watch), 60)
    after = statistics.median(watch.steps("fewer bits", 12))
    check("Int8" in codecs(watch), f"status.plan.codecs: {codecs(watch)}")
    check(after <= SHARE * before, f"a step takes {after:.2f} s, before {before:.2f} s; {note}")
    shown = bits_of_links(watch)
    check(8.25 in shown.values(), f"weir_link_codec_bits {shown}")
    check(shown == dict.fromkeys(shown, RAW_BITS) | bits_of_plan(codecs(watch)), f"weir_link_codec_bits {shown}, the plan has {codecs(watch)}")
    check(math.isfinite(watch.loss), f"loss {watch.loss}")
    outcome = watch.until("fewer bits", "event PlanOutcome", lambda: watch.note_of("PlanOutcome", "codecs"), 120)
    _, measured = live.gains(outcome)   # both links share the port, so each gets faster as soon as one sends less: nobody predicts that
    check(measured >= 1 - SHARE, f"the operator tells less than the steps show: {outcome}")

    lab.clear_links(*jobs.NODES)
    back = watch.until("port given back", "event PlanDecompressed", lambda: watch.note_of("PlanDecompressed"), 150)
    watch.until("port given back", "raw tensors", lambda: not codecs(watch), 180)   # perhaps in several steps, as the estimates follow
    check(watch.job()["status"].get("restarts", 0) == 0, "a worker was restarted")
    return f"{before:.2f} s -> {after:.2f} s; {proposed}; {note}; {outcome}; {back}"


def cleanup(_):
    lab.clear_links(*jobs.NODES)
