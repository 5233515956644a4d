# SPDX-License-Identifier: Apache-2.0
"""The node of the worker that coordinates stands still: the others ask the operator, which names one of them; training goes on as after any loss, and the
former coordinator comes back as one of the workers."""
import contextlib

import lab
from failing import ranks
from lab import check
from recovering import LONGEST, coordinator, copies_come, few_are_done_again, nothing_is_lost, prepare, spares_are, standing_still, train

PAIR, SINGLE = "pair", "single"   # jobs of two replicas, and of one with a spare


def named_anew(namespace, name, former):
    """What users read of it."""
    named = lab.job(namespace, name)["status"]["coordinator"]
    check(named["pod"] != former and named["term"] == 2, f"{former} was lost: {named}")
    [event] = lab.events(namespace, "CoordinatorMoved", name)
    check(named["pod"] in event["note"] and former in event["note"], event["note"])
    return event["note"]


def test_two_replicas_go_on_under_another_coordinator(namespace):
    prepare(namespace)
    train(namespace, PAIR, 2, "fast", args=["--dead-after=8"])
    former = coordinator(namespace, PAIR)

    def stand_still():
        with standing_still(namespace, former):
            lab.wait_until("another coordinator", lambda: coordinator(namespace, PAIR) != former, LONGEST)
            lab.wait_until("one replica trains", lambda: lab.job(namespace, PAIR)["status"].get("recovery", {}).get("lostReplicas"), LONGEST)
            step = lab.reported_step(namespace, PAIR)
            lab.wait_until("steps without the other", lambda: lab.reported_step(namespace, PAIR) >= step + 3, LONGEST)

    note = nothing_is_lost(namespace, "node of the coordinator stands still", stand_still, PAIR, counted=False)
    told = named_anew(namespace, PAIR, former)
    lab.wait_until("two replicas train", lambda: not lab.job(namespace, PAIR)["status"]["recovery"].get("lostReplicas"), LONGEST)
    check(lab.job(namespace, PAIR)["status"].get("restarts", 0) == 0, "the former coordinator was only away")
    return f"{note}; {told}"


def test_a_spare_takes_the_stage_of_the_coordinator(namespace):
    prepare(namespace)
    train(namespace, SINGLE, 1, "profile", spares=1, group=0)
    lab.wait_until("the spare has joined", lambda: spares_are(namespace, SINGLE, "1/1"), LONGEST)
    copies_come(namespace, SINGLE)
    former = coordinator(namespace, SINGLE)
    [place] = [place for place, pod in ranks(namespace, SINGLE).items() if pod == former]
    with contextlib.ExitStack() as until_the_end:
        stop = standing_still(namespace, former)
        note = few_are_done_again(namespace, "node of the coordinator stands still, a spare", lambda: until_the_end.enter_context(stop), SINGLE, counted=False)
        check(ranks(namespace, SINGLE)[place] != former, f"{former} has its stage again")
        told = named_anew(namespace, SINGLE, former)
    return f"{note}; {told}"
