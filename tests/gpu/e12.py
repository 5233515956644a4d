# SPDX-License-Identifier: Apache-2.0
"""E12: kFkB against 1F1B with one stage that computes on a GPU and three that sleep as long, over links of known time. Unlike the
benchmarks with emulated compute alone, transfers disturb real kernels here, and copies between GPU and host are on the way."""
import json
import pathlib

import pipeline
from setting import temporary_folder

STAGES, MICRO_BATCHES, CUDA_STAGE = 4, 32, 1
# Gain of k = 2 over 1F1B by c / f, in percent, from the event simulator (tests/bench: E2). f is a third of F + B: the gain
# depends on their sum (within 1.5 points for B = 1.5 F to 2.5 F).
GAINS = ((0.0, 0.0), (0.05, 2.2), (0.1, 4.4), (0.2, 8.7), (0.5, 21.3), (1.0, 41.4), (2.0, 57.1))
RATIOS = (0.1, 0.5, 1.0, 2.0)


def predicted(ratio):
    for (a, low), (b, high) in zip(GAINS, GAINS[1:]):
        if ratio <= b:
            return low + (high - low) * (ratio - a) / (b - a)
    return GAINS[-1][1]


class Pipeline:
    def __init__(self, setting, folder):
        self.setting, self.folder = setting, folder
        # Wide and as many blocks as there are on the GPU: even a tenth of its compute is then a millisecond for a message of 1 MB,
        # which loopback TCP can do.
        model, self.sequence, channels, self.layers, self.size = (
            ("gpt-tiny", 64, 64, 8, 4) if setting.rehearse else ("gpt-1.3b", 128, 2048, 26, 1))
        self.message_bytes = self.size * self.sequence * channels * 4
        self.ranges = [[0, 0], [1, self.layers - 3], [self.layers - 2] * 2, [self.layers - 1] * 2]
        self.common = [f"--model={model}", f"--seq={self.sequence}", "--lr=0", "--transport=TCP"]
        self.blocks = ["embed", *(f"block{i}" for i in range(self.layers - 2)), "head"]

    def train(self, plans, every, forward, backward, more=()):
        """Others sleep so many seconds an op. plans: values of k; the steps of each, less two that warm up."""
        times = {"sleep": [{"samples": self.size, "forward": forward, "backward": backward}]}
        profile = pathlib.Path(self.folder) / "profile.json"
        profile.write_text(json.dumps({"apiVersion": "weir.dev/profile/v1", "nodes": [{"id": name, "times": times} for name in self.blocks]}))
        documents = [pipeline.plan(STAGES, self.layers, MICRO_BATCHES, self.size, revision=i + 1, k=k, ranges=self.ranges)
                     for i, k in enumerate(plans)]
        computes = [f"--device={self.setting.device}"]
        sleeps = ["--device=cpu", f"--emulate-profile={profile}", "--emulate-device=sleep", "--emulate-idle"]
        return self.setting.train([*self.common, f"--steps={(every + 3) * len(plans)}", *more], plans=documents,
                                  every=every, scrape=True, of_worker=lambda i: computes if i == CUDA_STAGE else sleeps)

    def ops_of(self, run):
        """Median F and B of the stage on the GPU, seconds a micro-batch."""
        return [run.median(CUDA_STAGE, key, skip=3) / MICRO_BATCHES for key in ("forward_seconds", "backward_seconds")]


def step_of(run, plans, k):
    """Median of the steps with that k, from the first F to the last B of stage 0."""
    times = [run.steps[0][i]["step_seconds"] for (begin, end), own in zip(run.spans(), plans) if own == k for i in range(begin + 2, end - 1)]
    return sorted(times)[len(times) // 2]


def e12(report, setting):
    with temporary_folder() as folder:
        line = Pipeline(setting, folder)
        calibration = line.train([1], 10, 1e-4, 1e-4)
        forward, backward = line.ops_of(calibration)
        third = (forward + backward) / 3
        report.add("INFO", "e12", "F and B of the GPU stage with nothing beside it", f"{forward * 1e3:.2f} and {backward * 1e3:.2f} ms")
        for ratio in RATIOS[1:2] if setting.rehearse else RATIOS:
            plans, every = [1, 2] if ratio > RATIOS[0] else [1, 2, 1, 2], 4 if setting.rehearse else 7  # a small gain wants more steps
            rate = line.message_bytes / (ratio * third)
            run = line.train(plans, every, forward, backward, [f"--pace-rate={rate:.0f}B"])
            gain = 100 * (step_of(run, plans, 1) / step_of(run, plans, 2) - 1)
            c, (own_forward, own_backward) = run.transfer_seconds(line.message_bytes), line.ops_of(run)
            real = c * 3 / (own_forward + own_backward)
            expected = predicted(real)
            text = f"{gain:+.1f} % (c/f measured {real:.2f}: {expected:+.1f} %; 1F1B {step_of(run, plans, 1) * 1e3:.0f} ms)"
            verdict = "INFO" if setting.rehearse else "PASS" if abs(gain - expected) <= 0.3 * expected else "FAIL"
            report.add(verdict, "e12", f"k = 2 over 1F1B at c/f = {ratio}", text, "+-30 % of the gain")
            report.add("INFO", "e12", f"F and B of the GPU stage disturbed by transfers, c/f = {ratio}",
                       f"{100 * (own_forward / forward - 1):+.1f} and {100 * (own_backward / backward - 1):+.1f} %")
