# SPDX-License-Identifier: Apache-2.0
"""Parts of tests/gpu/report that run one process on the GPU: operations, losses, speed, memory, repeatability, sanitizer."""
import json
import math
import os
import pathlib
import shutil
import subprocess

import pipeline
from setting import HERE, gpu_name, temporary_folder, torch_python

# Dense peak of a GPU in that precision, FLOP/s (NVIDIA's data sheets; float32 without TF32).
PEAKS = {("H100", "fp32"): 67e12, ("H200", "fp32"): 67e12, ("A100", "fp32"): 19.5e12, ("L4", "fp32"): 30.3e12,
         ("H100", "bf16"): 989e12, ("H200", "bf16"): 989e12, ("A100", "bf16"): 312e12, ("L4", "bf16"): 121e12}
GPT_125M = {"layers": 12, "channels": 768, "heads": 12}


SUITE_LIMIT = 60   # seconds for one suite of gpu_tests, so that one that hangs leaves time for the others
MOST_AGAIN = 6     # failed tests of a suite that run once more, alone
MOST_HANGS = 2     # suites that hang, after which the rest is left: the GPU itself hangs
LATE = "not done in time"
FIRST = ("Ops/Twins", "Models/GpuTimes")   # what tells most


def tests_of(setting, suite, *words):
    """The tests of a suite as gpu_tests reports them, in a process of their own: an error of a kernel spoils all that come after
    it in a process. With what went wrong, or nothing."""
    with temporary_folder() as name:
        file = pathlib.Path(name) / "tests.json"
        try:
            done = setting.run_tests("--gtest_brief=1", f"--gtest_output=json:{file}", *words, limit=SUITE_LIMIT)
        except subprocess.TimeoutExpired:
            return [], LATE
        pipeline.keep_text("gpu_tests-" + suite.replace("/", "-"), done.stdout + done.stderr)
        suites = json.loads(file.read_text())["testsuites"] if file.exists() else []
    wrong = "" if done.returncode == 0 else f"exit code {done.returncode}"
    return [{**test, "full": f"{one['name']}.{test['name']}"} for one in suites for test in one["testsuite"]], wrong


def ops(report, setting):
    if not setting.gpu_tests.exists():
        return report.add("SKIP", "ops", "gpu_tests", "not built")
    suites = [line.strip().rstrip(".") for line in setting.run_tests("--gtest_list_tests").stdout.splitlines()
              if line.rstrip().endswith(".") and not line.startswith(" ")]
    every, hangs = [], 0
    for suite in sorted(suites, key=lambda one: FIRST.index(one) if one in FIRST else len(FIRST)):
        if hangs == MOST_HANGS:
            report.add("SKIP", "ops", suite, f"{hangs} suites have not ended")
            continue
        tests, wrong = tests_of(setting, suite, f"--gtest_filter={suite}.*")
        hangs += wrong == LATE
        every += tests
        failed = [test["full"] for test in tests if test.get("failures")]
        alone = [one for one in failed[:MOST_AGAIN] if tests_of(setting, f"alone-{one}", f"--gtest_filter={one}")[1]]
        skipped = sum(test.get("result") == "SKIPPED" for test in tests)
        text = f"{len(tests) - skipped - len(failed)} of {len(tests)} pass, {skipped} skipped"
        if wrong:
            text = f"{wrong}; {text}; fail: {', '.join(failed)}; of the first {MOST_AGAIN} these fail alone, too: {', '.join(alone) or 'none'}"
        report.judge(not wrong and (setting.rehearse or not skipped), "ops", suite, text, "all pass")
    tell_numbers(report, every)
    return None


def tell_numbers(report, tests):
    for ending, limit in (("Fp32", "2e-5"), ("Bf16", "7.8e-3")):
        found = [(float(test["worst_error"]), test["name"]) for test in tests if "worst_error" in test and test["name"].endswith(ending)]
        if found:
            worst, which = max(found)
            report.add("INFO", "ops", f"largest error of an element, by the largest of its array, {ending.lower()}",
                       f"{worst:.1e} ({which.split('/')[-1]}; of {len(found)} cases)", limit)
    for precision in ("Fp32", "Bf16"):
        for layer in ("block", "head", "embed"):
            mark = f"time_of_{layer} "
            times = {key[len(mark):]: float(value) for test in tests if test["name"].endswith(precision)
                     for key, value in test.items() if key.startswith(mark)}
            whole, update = times.pop("whole", 0), times.pop("update", 0)
            if whole:
                report.add("INFO", "ops", f"{layer} of gpt-125m, 4 x 1024 tokens, {precision.lower()}: forward and backward, ms",
                           f"{whole:.3f}: {', '.join(f'{name} {time:.3f}' for name, time in sorted(times.items(), key=lambda one: -one[1]))}; "
                           f"between ops {whole - sum(times.values()):.3f}; update {update:.3f}")
    for key, what in (("open_ms", "making a communicator, ms"), ("abort_ms", "aborting a communicator until it is drained, ms"),
                      ("beside_transfers", "forward and backward beside NCCL transfers that never pause, x")):
        values = [f"{float(test[key]):.2f} ({test['name']})" for test in tests if key in test]
        if values:
            report.add("INFO", "ops", what, ", ".join(values))


def loss(report, setting):
    with temporary_folder() as folder:
        text = setting.text_file(folder)
        for precision in ("fp32", "bf16"):
            arguments = ["--model=gpt-tiny", "--seq=64", "--lr=3e-3", f"--steps={5 if setting.rehearse else 50}",
                         f"--precision={precision}", f"--data={text}"]
            here, reference = setting.train(arguments), setting.train(arguments, device="cpu")
            worst = max(abs(a - b) / b for a, b in zip(here.losses, reference.losses))
            report.judge(worst <= 0.01, "loss", f"{len(here.losses)} steps on text in {precision} against the CPU, largest difference",
                         f"{worst:.2e}", "1e-2")


def text(report, setting):
    """A byte is guessed at ln 256 = 5.55; frequencies of letters alone reach 3.2."""
    model, sequence, size, steps = ("gpt-tiny", 32, 4, 20) if setting.rehearse else ("gpt-125m", 512, 8, 300)
    with temporary_folder() as folder:
        for precision in ("bf16",) if setting.rehearse else ("fp32", "bf16"):
            run = setting.train([f"--model={model}", f"--seq={sequence}", f"--steps={steps}", "--micro-batches=4",
                                 f"--micro-batch-size={size}", f"--precision={precision}", "--lr=3e-4", "--warmup=20",
                                 "--grad-clip=1", f"--data={setting.text_file(folder)}"])
            end = sum(run.losses[-10:]) / 10
            curve = " ".join(f"{run.losses[i]:.2f}" for i in range(0, steps, max(1, steps // 6))) + f" {end:.3f}"
            report.judge(math.isfinite(end) and end < (run.losses[0] if setting.rehearse else 3.0), "text",
                         f"{model} on text in {precision}, {steps} steps of {4 * size * sequence} bytes, loss", curve, "below 3 at the end")


def flops_per_token(sequence, vocabulary):
    """6 per weight of a product, and 12 C T per layer for attention (PaLM, appendix B)."""
    layers, channels = GPT_125M["layers"], GPT_125M["channels"]
    return 6 * (12 * layers * channels**2 + vocabulary * channels) + 12 * layers * channels * sequence


def speed(report, setting, part="speed", precision="fp32", batch=(4, 4), beside=("eager", "compiled")):
    """batch: micro-batches and samples in each. beside: the ways of PyTorch to compare with."""
    sequence, vocabulary, steps = (16, 64, 6) if setting.rehearse else (1024, 50304, 14)
    micro_batches, size = (2, 1) if setting.rehearse else batch
    tokens = sequence * micro_batches * size
    model = "gpt-tiny" if setting.rehearse else "gpt-125m"
    run = setting.train([f"--model={model}", f"--seq={sequence}", f"--vocab={vocabulary}", f"--steps={steps}",
                         f"--micro-batches={micro_batches}", f"--micro-batch-size={size}", f"--precision={precision}"])
    seconds = run.step_seconds(skip=steps // 2)
    report.add("INFO", part, f"{model}, batch {micro_batches} x {size} x {sequence}, {precision}", f"{tokens / seconds:.0f} tokens/s")
    parts = [1e3 * run.median(0, key, skip=steps // 2) for key in ("forward_seconds", "backward_seconds", "iteration_seconds")]
    report.add("INFO", part, "of a step: all forwards, all backwards, the rest",
               f"{parts[0]:.1f}, {parts[1]:.1f}, {parts[2] - parts[0] - parts[1]:.1f} ms")
    name = gpu_name()
    peak = next((value for (gpu, of), value in PEAKS.items() if gpu in name and of == precision), None)
    if peak and not setting.rehearse:
        report.add("INFO", part, "MFU", f"{100 * flops_per_token(sequence, vocabulary) * tokens / seconds / peak:.1f} %")
    for mode in beside:
        beside_torch(report, part, [mode, precision], seconds, [*GPT_125M.values(), sequence, vocabulary, micro_batches, size, steps],
                     setting)


def speed_bf16(report, setting):
    """The batch of `speed` beside PyTorch, and the larger ones for which others publish figures (llm.c: 64 samples): few tokens leave
    products too small for a large GPU."""
    speed(report, setting, "speed-bf16", "bf16")
    for batch in ((1, 16), (1, 32)):
        speed(report, setting, "speed-bf16", "bf16", batch, beside=())


def beside_torch(report, part, how, seconds, sizes, setting):
    mode, python = how[0], torch_python()
    if shutil.which(python) is None:
        return report.add("SKIP", part, f"PyTorch {mode}", f"no {python}")
    told = subprocess.run([python, HERE / "torch_gpt.py", *map(str, sizes), *how], capture_output=True, text=True,
                          timeout=setting.left(), check=False)
    if told.returncode == 77:
        return report.add("SKIP", part, f"PyTorch {mode}", f"no torch with CUDA in {python}")
    if told.returncode != 0:
        pipeline.keep_text(f"torch-{mode}-{how[1]}", told.stderr)
        last = (told.stderr.strip().splitlines() or ["no output"])[-1]
        return report.add("FAIL" if mode == "eager" else "INFO", part, f"PyTorch {mode}", f"broken: {last}")
    found = json.loads(told.stdout.splitlines()[-1])
    ratio = found["seconds"] / seconds
    value = f"{ratio:.2f} x PyTorch {found['torch']} {mode} ({found['seconds'] * 1e3:.1f} ms a step, ours {seconds * 1e3:.1f})"
    if mode == "compiled":
        return report.add("INFO", part, "throughput", value)
    return report.judge(ratio >= 0.9, part, "throughput", value, ">= 0.9")


def graphs(report, setting):
    """The same bits with graphs, and where they pay: small models and micro-batches leave the device waiting for the host."""
    sizes = [("gpt-tiny", 32, 256, 1)] if setting.rehearse else [("gpt-tiny", 128, 256, 4), ("gpt-mini", 256, 256, 1), ("gpt-125m", 1024, 50304, 1),
                                                                ("gpt-125m", 1024, 50304, 4)]
    steps, micro_batches = (3, 2) if setting.rehearse else (24, 4)
    for model, sequence, vocabulary, size in sizes:
        common = [f"--model={model}", f"--seq={sequence}", f"--vocab={vocabulary}", f"--steps={steps}", f"--micro-batches={micro_batches}",
                  f"--micro-batch-size={size}", "--precision=bf16"]
        runs = {use: setting.train([*common, f"--graphs={use}"]) for use in ("off", "on", "auto")}
        name = f"{model}, {size} x {sequence} tokens"
        equal = all(run.exact == runs["off"].exact for run in runs.values())
        report.judge(equal, "graphs", f"losses of {name}, bf16, without graphs and with", "equal bits" if equal else "differ", "equal bits")
        seconds = {use: run.step_seconds(skip=steps // 2) for use, run in runs.items()}
        launches = {use: sum(step["graph_launches"] for step in run.steps[0][steps // 2:]) for use, run in runs.items()}
        passes = 2 * micro_batches * (steps - steps // 2)
        report.judge(setting.rehearse or launches["on"] == passes, "graphs", f"passes of {name} launched as graphs, on and auto",
                     f"{launches['on']} and {launches['auto']} of {passes}", "on: all")
        report.add("INFO", "graphs", f"step of {name} without graphs, and what graphs make of it (on, auto)",
                   f"{1e3 * seconds['off']:.2f} ms, {seconds['off'] / seconds['on']:.3f} x and {seconds['off'] / seconds['auto']:.3f} x")


def memory(report, setting):
    """Of whole runs in two stages, parameters included; gpu_tests compares kept activations alone. On a GPU messages that go by TCP lie in
    pinned memory of the host, which is not counted. cuBLASLt's workspace (34 MB) is, and not in the formula."""
    sizes = ("mlp", "gpt-tiny") if setting.rehearse else ("gpt-125m", "gpt-350m", "gpt-1.3b")
    for model in sizes:
        for k in (1, 2):
            common = [f"--model={model}", "--seq=32" if setting.rehearse else "--seq=512", "--steps=3", "--transport=TCP"]
            layers = {"gpt-125m": 14, "gpt-350m": 26, "gpt-1.3b": 26}.get(model, 8)
            run = setting.train(common, plans=[pipeline.plan(2, layers, 8, 4, k=k)])
            peaks, planned, messages = (run.of_each(key) for key in ("memory_peak_bytes", "planned_bytes", "planned_message_bytes"))
            if not setting.rehearse:
                planned = [plan - of_messages for plan, of_messages in zip(planned, messages)]
            off = [peak / plan - 1 for peak, plan in zip(peaks, planned)]
            text = ", ".join(f"{peak / 1e6:.1f} MB ({100 * one:+.1f} %)" for peak, one in zip(peaks, off))
            report.add("INFO" if setting.rehearse else "PASS" if max(map(abs, off)) <= 0.05 else "FAIL", "memory",
                       f"{model}, k = {k}: peak of each stage against the planner's formula", text, "5 %")


def repeat(report, setting):
    for precision in ("fp32", "bf16"):
        arguments = [*setting.small(4 if setting.rehearse else 40), f"--precision={precision}"]
        first, second = setting.train(arguments), setting.train(arguments)
        report.judge(first.exact == second.exact, "repeat", f"losses of two runs in {precision}",
                     "equal bits" if first.exact == second.exact else "differ", "equal bits")


def sanitizer(report, setting):
    tool = shutil.which("compute-sanitizer", path=os.environ.get("PATH", "") + ":/usr/local/cuda/bin")
    if tool is None or not setting.gpu_tests.exists():
        return report.add("SKIP", "sanitizer", "compute-sanitizer", "not on this machine")
    kernels = "*Twins.*:*Unaligned.*:SegmentSums.*:Squares.*"
    checks = (("memcheck", kernels + ":GpuDevice.*:GpuOverlap.*:*GpuGraph*:*GpuMemory.*cuda*"), ("racecheck", kernels), ("synccheck", kernels))
    for i, (check, tests) in enumerate(checks):
        try:
            done = setting.run_tests(f"--gtest_filter={tests}", "--gtest_brief=1", before=[tool, f"--tool={check}", "--error-exitcode=9"],
                                     limit=setting.left() / (len(checks) - i))
        except subprocess.TimeoutExpired:
            report.add("INFO", "sanitizer", check, "not done in time")
            continue
        output = done.stdout + done.stderr
        pipeline.keep_text(f"sanitizer-{check}", output)
        if "not supported" in output:
            report.add("SKIP", "sanitizer", check, next(line for line in output.splitlines() if "not supported" in line))
            continue
        last = ([line for line in output.splitlines() if "SUMMARY" in line] or ["no summary"])[-1].strip("= ")
        report.judge(done.returncode == 0, "sanitizer", check, f"exit code {done.returncode}, {last}", "0")
    return None
