# SPDX-License-Identifier: Apache-2.0
"""Real weir-torch processes over the loopback: starts them, reads what they tell, ends them whatever happens."""
import contextlib
import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))
from ports import free_port   # noqa: E402

PATIENCE = 120.0   # seconds on a machine full of other work
BUILD = pathlib.Path(os.environ.get("WEIR_BUILD") or ROOT / "build/ci/worker/app")   # a folder with weir-worker and libweir-worker.so
TEXT = ROOT / "LICENSE"
EXAMPLE = ROOT / "worker/python/examples/model.py"
TORCH = (sys.executable, "-m", "weir_torch")
NATIVE = (str(BUILD / "weir-worker"),)


def environment():
    return {**os.environ, "PYTHONPATH": str(ROOT / "worker/python"), "WEIR_LIBRARY": str(BUILD / "libweir-worker.so"), "WEIR_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1", "WEIR_TERMINATION_LOG": os.devnull}


def until(condition, what, limit=PATIENCE):
    """what: words for the error, or what tells them then."""
    end = time.monotonic() + limit
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"not within {limit} s: {what() if callable(what) else what}")
        time.sleep(0.02)


def lines_of(path):
    """The whole JSON lines of a log that may be written just now."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


class Process:
    def __init__(self, folder, name, arguments, program=TORCH, env=None):
        self.errors_file, self.loss_file = folder / f"{name}.log", folder / f"{name}.jsonl"
        self.errors_file.unlink(missing_ok=True)
        words = [*program, *arguments, f"--loss-log={self.loss_file}", "--step-report=0", "--metrics-port=0"]
        with open(self.errors_file, "wb") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log, env={**environment(), **(env or {})}, cwd=folder)

    def errors(self):
        return self.errors_file.read_text(errors="replace")

    def wait(self, limit=PATIENCE):
        try:
            return self.process.wait(limit)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still runs after {limit} s: {self.errors()[-2000:]}") from None

    def steps(self):
        return lines_of(self.loss_file)

    def losses(self):
        return [step["loss_hex"] for step in self.steps()]

    def reaches(self, count):
        self.comes_to(lambda steps: len(steps) >= count, f"{count} steps")

    def adopts(self, epoch):
        """Waits for a step of that plan. A plan that is written before replaces the one that no worker has adopted yet."""
        self.comes_to(lambda steps: steps and steps[-1]["epoch"] >= epoch, f"a step of plan {epoch}")

    def comes_to(self, condition, wanted):
        def done():
            if self.process.poll() not in (None, 0):
                raise AssertionError(f"ended with {self.process.returncode}: {self.errors()[-2000:]}")
            return condition(self.steps())
        until(done, lambda: f"{wanted}; {self.errors()[-1500:]}")

    def says(self, text):
        until(lambda: text in self.errors(), lambda: f"{text!r} in {self.errors()[-1500:]}")

    def end(self, number=signal.SIGKILL):
        if self.process.poll() is None:
            self.process.send_signal(number)


def plan(stages, layers, ranges=None, k=1, micro_batches=4, micro_batch_size=2, revision=1, trigger="Initial", state="Keep", shares=None):
    """shares: micro-batches of each replica; one has all without."""
    ranges = ranges or [(layers * s // stages, layers * (s + 1) // stages - 1) for s in range(stages)]
    return {"apiVersion": "weir.dev/plan/v1", "revision": revision, "parent": revision - 1, "trigger": trigger, "state": state,
            "microBatches": shares or [micro_batches],
            "schedule": {"type": "KFKB", "dispatch": "Strict" if k == 1 else "Hint", "k": k, "microBatchSize": micro_batch_size,
                         "caps": [min([*(shares or [micro_batches]), k * (stages - s)]) for s in range(stages)]},
            "stages": [{"index": s, "layers": list(ranges[s])} for s in range(stages)]}


class Workers(contextlib.AbstractContextManager):
    """One worker a stage; worker 0 coordinates from a plan file."""

    def __init__(self, folder, arguments, programs=None, **of):
        self.folder, self.arguments, self.programs, self.of, self.starts = pathlib.Path(folder), list(arguments), programs, of, 0
        self.count, self.port = of["stages"] * len(of.get("shares") or [0]), free_port()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.write(**of)
        self.all = [self.start(i) for i in range(self.count)]

    def write(self, **of):
        fresh = self.folder / "plan.json.new"
        fresh.write_text(json.dumps(plan(**of)))
        fresh.rename(self.folder / "plan.json")

    def start(self, i):
        self.starts += 1
        words = [*self.arguments, f"--plan={self.folder}/plan.json", f"--workers={self.count}", f"--worker-index={i}", "--data-port=0",
                 f"--control-port={self.port if i == 0 else 0}", *([f"--coordinator=127.0.0.1:{self.port}"] if i else [])]
        return Process(self.folder, f"worker-{i}-{self.starts}", words, self.programs[i] if self.programs else TORCH)

    def __exit__(self, *_):
        for one in self.all:
            one.end()
            one.process.wait()

    def wait(self):
        """Until all have ended. Fails at once with the words of the first that fails: the others may wait for it."""
        def ended():
            codes = [one.process.poll() for one in self.all]
            if any(codes):
                raise AssertionError(f"exit codes {codes}: " + "\n".join(one.errors()[-1500:] for one, code in zip(self.all, codes) if code))
            return None not in codes
        until(ended, lambda: f"the end of all workers: {self.all[0].errors()[-2000:]}", PATIENCE * len(self.all))

    def losses(self):
        return self.all[-1].losses()


def alone(folder, arguments, micro_batches=4, micro_batch_size=2, program=TORCH, env=None):
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    words = [*arguments, f"--micro-batches={micro_batches}", f"--micro-batch-size={micro_batch_size}"]
    return Process(pathlib.Path(folder), "alone", words, program, env)


def values_of(folder):
    """{layer file: SHA-256} of the newest checkpoint."""
    newest = max(folder.glob("step-*"), key=lambda path: int(path.name.split("-")[1]))
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(newest.iterdir()) if "layer" in path.name}
