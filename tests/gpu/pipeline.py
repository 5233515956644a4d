# SPDX-License-Identifier: Apache-2.0
"""Runs of weir-worker for tests/gpu/report: alone, or a pipeline of processes by a plan file. Every run has a time limit and
ends its processes."""
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import tarfile
import tempfile
import time
import urllib.request

kept = None  # folder for what broken runs and tests have written; None: nothing is kept


class Broken(Exception):
    """A run that did not end well; its text has the first and the last error line of the workers."""


class Run:
    """Losses (exact text) and step times of a finished run, and what its workers logged."""

    def __init__(self, folder, count, pages):
        logs = [(folder / f"log-{i}.jsonl").read_text(errors="replace") for i in range(count)]
        self.logs = [[line for line in map(parsed, text.splitlines()) if line] for text in logs]
        steps = [(folder / f"steps-{i}.jsonl").read_text() for i in range(count)]
        self.steps = [[json.loads(line) for line in text.splitlines()] for text in steps]
        self.pages = pages  # metrics of each worker while it ran
        self.recovery_seconds = None  # from the death of a worker to the first step after it
        last = sorted((step for rank in self.steps for step in rank if step["loss"] is not None), key=lambda step: step["step"])
        own = {step["step"]: step for step in last}  # of replicas one
        self.losses = [step["loss"] for step in own.values()]
        self.exact = [step["loss_hex"] for step in own.values()]
        self.times = [step["iteration_seconds"] for step in self.steps[0]]
        self.epochs = [step["epoch"] for step in self.steps[0]]

    def step_seconds(self, skip=3):
        return statistics.median(self.times[skip:])

    def median(self, rank, key, skip):
        return statistics.median(step[key] for step in self.steps[rank][skip:])

    def spans(self):
        """First step and the one after the last of each plan in force, of rank 0."""
        starts = [i for i in range(len(self.epochs)) if i == 0 or self.epochs[i] != self.epochs[i - 1]]
        return list(zip(starts, [*starts[1:], len(self.epochs)]))

    def lines(self, key):
        return [line for log in self.logs for line in log if key in line]

    def logged(self, key):
        return next((line[key] for line in self.lines(key)), None)

    def of_each(self, key):
        """What each worker logged last."""
        return [[line[key] for line in log if key in line][-1] for log in self.logs]

    def transfer_seconds(self, message_bytes):
        """Of one message over a link, mean over all links and directions, as the receivers timed it."""
        totals = [sum(float(value) for page in self.pages for value in re.findall(rf"^{name}{{[^}}]*}} (\S+)$", page, re.M))
                  for name in ("weir_link_busy_seconds_total", "weir_link_bytes_total")]
        if totals[1] <= 0:
            raise Broken("the workers' metrics have no transfers")
        return totals[0] / totals[1] * message_bytes


def parsed(line):
    try:
        found = json.loads(line)
        return found if isinstance(found, dict) else None
    except ValueError:
        return None


def plan(stages, layers, micro_batches, micro_batch_size, revision=1, k=1, replicas=1, ranges=None):
    """ranges: layers of each stage; else about as many for each."""
    share = micro_batches // replicas
    ranges = ranges or [[layers * s // stages, layers * (s + 1) // stages - 1] for s in range(stages)]
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


def train(worker, arguments, plans=(), limit=300, environment=None, every=20, of_worker=None, scrape=False, killed=None):
    """One worker without plans, else one per stage and replica of plans[0]; a later plan comes when the one before was in force for
    `every` steps. environment, of_worker: variables and further arguments of worker i. scrape: read the metrics when the last plan
    was given. killed: the worker, not 0, that is killed before the second plan, and made again."""
    count = len(plans[0]["stages"]) * len(plans[0]["microBatches"]) if plans else 1
    with tempfile.TemporaryDirectory(prefix="weir-gpu-") as name:
        folder, processes, done = pathlib.Path(name), [], False
        try:
            end = time.monotonic() + limit
            spawn = _start(worker, [arguments + (of_worker(i) if of_worker else []) for i in range(count)], plans, folder, environment,
                           processes)
            recovery = _replace(folder, plans, every, end, processes, killed, spawn) if killed is not None else None
            _replan(folder, plans[1:] if killed is not None else plans, every, end, processes)
            pages = [_metrics(folder, i, plans[-1]["revision"], every - 2) for i in range(count)] if scrape else []
            codes = [process.wait(timeout=max(0.1, end - time.monotonic())) for process in processes]
            if any(codes):
                raise Broken(f"exit codes {codes}: {_errors(folder, count)}")
            run = Run(folder, count, pages)
            run.recovery_seconds, done = recovery, True
            return run
        except subprocess.TimeoutExpired:
            raise Broken(f"not done within {limit:.0f} s: {_errors(folder, count)}") from None
        finally:
            for process in processes:
                process.kill()
                process.wait()
            if not done:
                _keep_run(folder, arguments)


def keep_text(name, text):
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        (kept / f"{name}.txt").write_text(text)


def keep_all(table):
    """The table so far, and one archive FOLDER.tgz of all that is kept, made anew: what a killed report leaves is complete."""
    if kept is None:
        return
    keep_text("table", table)
    archive = kept.with_name(kept.name + ".tgz")
    part = archive.with_suffix(".part")
    with tarfile.open(part, "w:gz") as tar:
        tar.add(kept, kept.name)
    part.replace(archive)


def _keep_run(folder, arguments):
    if kept is None:
        return
    kept.mkdir(parents=True, exist_ok=True)
    place = kept / f"broken-{len(list(kept.iterdir()))}"
    shutil.copytree(folder, place)
    (place / "arguments").write_text(" ".join(map(str, arguments)) + "\n")


def _start(worker, arguments, plans, folder, environment, processes):
    """Returns a function that starts worker i once more."""
    def spawn(i):
        with open(folder / f"log-{i}.jsonl", "a", encoding="utf-8") as log:
            return subprocess.Popen(commands[i], stdout=log, stderr=log, env={**os.environ, **(environment(i) if environment else {})})

    commands = []
    if plans:
        (folder / "plan.json").write_text(json.dumps(plans[0]))
    port = None
    for i, own in enumerate(arguments):
        words = [str(worker), *own, f"--loss-log={folder}/steps-{i}.jsonl", "--step-report=0"]
        if plans:
            words += [f"--plan={folder}/plan.json", f"--workers={len(arguments)}", f"--worker-index={i}", "--data-port=0",
                      "--metrics-port=0", "--control-port=0"]
        if i > 0:
            words.append(f"--coordinator=127.0.0.1:{port}")
        commands.append(words)
        processes.append(spawn(i))
        if i == 0 and len(arguments) > 1:
            port = until(lambda: _logged(folder, "control_port") or processes[0].poll(), 60)
            if port is None or processes[0].poll() is not None:
                raise Broken(_errors(folder, 1))
    return spawn


def _logged(folder, key, i=0):
    lines = map(parsed, (folder / f"log-{i}.jsonl").read_text(errors="replace").splitlines())
    return next((line[key] for line in lines if line and key in line), None)


def _steps(folder, revision):
    """That worker 0 has done by that plan or a later one."""
    path = folder / "steps-0.jsonl"
    lines = map(parsed, path.read_text().splitlines() if path.exists() else [])
    return sum(1 for line in lines if line and line["epoch"] >= revision)


def _replan(folder, plans, every, end, processes):
    for last, changed in zip(plans, plans[1:]):
        _until_steps(folder, last, every, end, processes)
        _give(folder, changed)


def _until_steps(folder, plan_in_force, steps, end, processes):
    until(lambda: _steps(folder, plan_in_force["revision"]) >= steps or any(process.poll() is not None for process in processes),
          end - time.monotonic())


def _give(folder, changed):
    fresh = folder / "plan.json.new"
    fresh.write_text(json.dumps(changed))
    fresh.rename(folder / "plan.json")


def _replace(folder, plans, every, end, processes, killed, spawn):
    """Seconds from the death of a worker to the first step by the second plan."""
    _until_steps(folder, plans[0], every, end, processes)
    processes[killed].kill()
    died = time.monotonic()
    processes[killed].wait()
    processes[killed] = spawn(killed)
    _give(folder, plans[1])
    _until_steps(folder, plans[1], 1, end, processes)
    return time.monotonic() - died


def _metrics(folder, i, revision, steps):
    """Not at the end, when a worker may be gone."""
    until(lambda: _steps(folder, revision) >= steps, 60)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{_logged(folder, 'metrics_port', i)}/metrics", timeout=10) as page:
            return page.read().decode()
    except OSError as problem:
        raise Broken(f"the metrics of worker {i}: {problem}") from None


def _errors(folder, count):
    """The first line of a worker that is a warning or an error, which is often the reason, and the last one."""
    told = []
    for i in range(count):
        path = folder / f"log-{i}.jsonl"
        for line in map(parsed, path.read_text(errors="replace").splitlines() if path.exists() else []):
            if line and line.get("level") in ("error", "warn") and "compute is emulated" not in line.get("msg", ""):
                text = " ".join(str(line[key]) for key in ("msg", "message", "reason", "error") if key in line)
                told.append((line.get("ts", ""), f"worker {i}: {text}"))
    texts = [text for _, text in sorted(told)]
    return "; ".join(dict.fromkeys([texts[0], texts[-1]])) if texts else "nothing was logged"
