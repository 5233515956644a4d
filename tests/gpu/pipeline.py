# SPDX-License-Identifier: Apache-2.0
"""Runs of weir-worker for tests/gpu/report: alone, or a pipeline of processes by a plan file. Every run has a time limit and
ends its processes."""
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time


class Broken(Exception):
    """A run that did not end well; its text is the last error line of the worker."""


class Run:
    """Losses (exact text) and step times of a finished run, and what its workers logged."""

    def __init__(self, folder, count):
        logs = [(folder / f"log-{i}.jsonl").read_text(errors="replace") for i in range(count)]
        self.logs = [[line for line in map(parsed, text.splitlines()) if line] for text in logs]
        steps = [(folder / f"steps-{i}.jsonl").read_text() for i in range(count)]
        self.steps = [[json.loads(line) for line in text.splitlines()] for text in steps]
        last = next(rank for rank in self.steps if rank and rank[0]["loss"] is not None)
        self.losses = [step["loss"] for step in last]
        self.exact = [step["loss_hex"] for step in last]
        self.times = [step["iteration_seconds"] for step in self.steps[0]]
        self.epochs = [step["epoch"] for step in self.steps[0]]

    def step_seconds(self, skip=3):
        return statistics.median(self.times[skip:])

    def lines(self, key):
        return [line for log in self.logs for line in log if key in line]

    def logged(self, key):
        return next((line[key] for log in self.logs for line in log if key in line), None)


def parsed(line):
    try:
        found = json.loads(line)
        return found if isinstance(found, dict) else None
    except ValueError:
        return None


def plan(stages, layers, micro_batches, micro_batch_size, revision=1, k=1, replicas=1):
    share = micro_batches // replicas
    ranges = [[layers * s // stages, layers * (s + 1) // stages - 1] for s in range(stages)]
    return {
        "apiVersion": "weir.dev/plan/v1", "revision": revision, "parent": revision - 1,
        "trigger": "Initial" if revision == 1 else "Retune", "state": "Keep", "microBatches": [share] * replicas,
        "schedule": {"type": "KFKB" if k > 1 else "OneFOneB", "dispatch": "Strict", "k": k, "microBatchSize": micro_batch_size,
                     "caps": [min(share, k * (stages - s)) for s in range(stages)]},
        "stages": [{"index": s, "layers": ranges[s]} for s in range(stages)]}


def until(found, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = found()
        if value:
            return value
        time.sleep(0.05)
    return None


def train(worker, arguments, plans=(), limit=300, environment=None, every=20):
    """One worker without plans, else one per stage and replica of plans[0]; later plans come `every` steps apart. environment: of worker i."""
    count = len(plans[0]["stages"]) * len(plans[0]["microBatches"]) if plans else 1
    with tempfile.TemporaryDirectory(prefix="weir-gpu-") as name:
        folder = pathlib.Path(name)
        processes = []
        try:
            _start(worker, arguments, plans, folder, count, environment, processes)
            _replan(folder, plans, every, limit)
            end = time.monotonic() + limit
            codes = [process.wait(timeout=max(0.1, end - time.monotonic())) for process in processes]
        except subprocess.TimeoutExpired:
            raise Broken(f"not done within {limit} s: {_last_error(folder, count)}") from None
        finally:
            for process in processes:
                process.kill()
                process.wait()
        if any(codes):
            raise Broken(f"exit codes {codes}: {_last_error(folder, count)}")
        return Run(folder, count)


def _start(worker, arguments, plans, folder, count, environment, processes):
    if plans:
        (folder / "plan.json").write_text(json.dumps(plans[0]))
    port = None
    for i in range(count):
        words = [str(worker), *arguments, f"--loss-log={folder}/steps-{i}.jsonl", "--step-report=0"]
        if plans:
            words += [f"--plan={folder}/plan.json", f"--workers={count}", f"--worker-index={i}", "--data-port=0",
                      "--metrics-port=0", "--control-port=0"]
        if i > 0:
            words.append(f"--coordinator=127.0.0.1:{port}")
        with open(folder / f"log-{i}.jsonl", "w", encoding="utf-8") as log:
            processes.append(subprocess.Popen(words, stdout=log, stderr=log, env={**os.environ, **(environment(i) if environment else {})}))
        if i == 0 and count > 1:
            port = until(lambda: _logged(folder, "control_port"), 60)
            if port is None:
                raise Broken(_last_error(folder, 1))


def _logged(folder, key):
    lines = map(parsed, (folder / "log-0.jsonl").read_text(errors="replace").splitlines())
    return next((line[key] for line in lines if line and key in line), None)


def _replan(folder, plans, every, limit):
    def steps():
        path = folder / "steps-0.jsonl"
        return len(path.read_text().splitlines()) if path.exists() else 0

    for i, changed in enumerate(plans[1:], start=1):
        until(lambda due=i * every: steps() >= due, limit)
        fresh = folder / "plan.json.new"
        fresh.write_text(json.dumps(changed))
        fresh.rename(folder / "plan.json")


def _last_error(folder, count):
    text = "nothing was logged"
    for i in range(count):
        path = folder / f"log-{i}.jsonl"
        for line in map(parsed, path.read_text(errors="replace").splitlines() if path.exists() else []):
            if line and line.get("level") in ("error", "warn"):
                text = f"worker {i}: " + " ".join(str(line[key]) for key in ("msg", "message", "reason") if key in line)
    return text
