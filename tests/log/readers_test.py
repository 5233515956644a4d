#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The training log of a worker that SIGKILL ends three times, read by TensorBoard's EventAccumulator and by pandas after each kill and at
the end: each step once, with the loss of the loss log. usage: WEIR_WORKER=PATH readers_test.py, with the packages of requirements.txt"""
import json
import os
import pathlib
import random
import subprocess
import tempfile
import time
import unittest

import pandas
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

WORKER = os.environ.get("WEIR_WORKER", "build/ci/worker/app/weir-worker")
KILLS, ROUNDS, MORE_STEPS = 3, 3, 20
WORDS = [WORKER, "--model=mlp", "--seq=8", "--vocab=32", "--micro-batches=2", "--micro-batch-size=2", "--lr=0.01", "--log-every=1", "--threads=1",
         "--checkpoint-interval=4", "--step-report=0"]


def losses_of(loss_log):
    """By completed steps; the last line may be torn."""
    found = {}
    for line in loss_log.read_text().splitlines():
        try:
            step = json.loads(line)
        except ValueError:
            break
        found[step["step"] + 1] = float.fromhex(step["loss_hex"])
    return found


def events(folder):
    """Step and loss of each scalar."""
    reader = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    reader.Reload()
    return [(scalar.step, scalar.value) for scalar in reader.Scalars("train/loss")]


def lines(folder):
    table = pandas.read_json(folder / "metrics.jsonl", lines=True)
    table = table[table["loss"].notna()]
    return list(zip(table["step"], table["loss"]))


class Readers(unittest.TestCase):
    def agree(self, folder, losses):
        for read in (events, lines):
            told = read(folder)
            steps = [step for step, _ in told]
            self.assertEqual(steps, sorted(set(steps)), f"{read.__name__}: a step is told twice")
            for step, loss in told:
                self.assertAlmostEqual(loss, losses[step], places=5, msg=f"{read.__name__}: step {step}")
        return steps

    def test_each_step_once_after_three_kills(self):
        for seed in range(ROUNDS):
            chance = random.Random(seed)
            with self.subTest(seed=seed), tempfile.TemporaryDirectory() as name:
                folder = pathlib.Path(name)
                losses = {}
                for run in range(KILLS + 1):
                    log = folder / f"losses-{run}"
                    ends = run == KILLS
                    words = WORDS + [f"--checkpoint-dir={folder}/saves", f"--loss-log={log}", f"--steps={max(losses) + MORE_STEPS if ends else 10**6}"]
                    with open(folder / f"errors-{run}", "w") as errors, subprocess.Popen(words, stderr=errors) as worker:
                        if not ends:
                            until = time.monotonic() + 60
                            while not (log.exists() and len(losses_of(log)) > 10) and time.monotonic() < until:
                                time.sleep(0.01)
                            time.sleep(chance.random())
                            worker.kill()
                    losses.update(losses_of(log))
                    steps = self.agree(folder / "saves" / "log", losses)
                self.assertEqual(steps[-1], max(losses), "the last step is told")


if __name__ == "__main__":
    unittest.main()
