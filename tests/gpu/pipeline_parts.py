# SPDX-License-Identifier: Apache-2.0
"""Parts of tests/gpu/report that run several processes on one GPU: stages and replicas over TCP and NCCL, changes of k."""
import time

import pipeline
from setting import temporary_folder


def four_processes(report, setting, part, arguments, environment=None, replicas=1):
    """4 stages, or fewer of several replicas, against one process; the run."""
    steps, micro_batches = (4, 4) if setting.rehearse else (20, 8)
    stages = 4 // replicas
    what = f"{stages} stages" + (f" x {replicas} replicas" if replicas > 1 else "")
    common = [*setting.small(steps), "--grad-clip=1"]
    alone = setting.train([*common, f"--micro-batches={micro_batches}", "--micro-batch-size=2"])
    layers = alone.logged("layers")
    begin = time.monotonic()
    run = setting.train([*common, *arguments], plans=[pipeline.plan(stages, layers, micro_batches, 2, replicas=replicas)],
                        environment=environment, limit=RUN_LIMIT)
    took = time.monotonic() - begin
    report.judge(run.exact == alone.exact, part, f"{what}: losses against one process", "equal bits" if run.exact == alone.exact else "differ",
                 "equal bits")
    ratio = run.step_seconds() / alone.step_seconds()
    report.add("INFO", part, f"{what}: step against one process",
               f"{ratio:.2f} x ({run.step_seconds() * 1e3:.1f} ms; the run {took:.0f} s)")
    for key, name in (("link_seconds", "links"), ("group_seconds", "sums' communicator")):
        seconds = run.logged(key)
        if seconds is not None:
            report.add("INFO", part, f"making the {name} of a generation", f"{seconds} s")
    return run


def tcp(report, setting):
    four_processes(report, setting, "tcp", ["--transport=TCP"])


def as_machine(i):
    return {"NCCL_HOSTID": f"weir-{i}", "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1", "NCCL_MAX_CTAS": "1"}


# What NCCL does with processes on one GPU is not known: a run that hangs must not take the time of the others.
NCCL = ["--transport=NCCL", "--connect-timeout=30", "--rejoin-timeout=5"]
RUN_LIMIT = 120  # seconds


def over_nccl(report, setting, part, replicas=1, environment=as_machine):
    if setting.rehearse:
        return report.add("SKIP", part, "4 processes", "needs a GPU")
    try:
        return four_processes(report, setting, part, NCCL, environment, replicas)
    except pipeline.Broken as problem:
        return report.add("INFO", part, "4 processes on one GPU", f"refused: {problem}")


def nccl_account(report, part, run):
    """What NCCL's profiler says of all communicators of the run, beside CUDA events."""
    lines = run.lines("send_network_seconds")
    if not lines:
        return report.add("INFO", part, "NCCL's account of its transfers", "none: no profiler")
    total = {key: sum(line[key] for line in lines) for key in lines[0] if key.endswith(("_seconds", "_bytes"))}
    report.add("INFO", part, "proxy steps of sends", f"{total['sent_bytes'] / 1e6:.1f} MB" if total["sent_bytes"] else "none arrived")
    report.add("INFO", part, "senders: network, peer, own GPU", " / ".join(
        f"{total[key]:.3f} s" for key in ("send_network_seconds", "send_peer_seconds", "send_gpu_seconds")))
    kernel, events = total["kernel_seconds"], total["event_seconds"]
    return report.add("INFO", part, "kernels by the GPU's clock against CUDA events",
                      f"{kernel:.3f} against {events:.3f} s ({100 * (kernel / events - 1):+.1f} %)" if kernel and events
                      else "no kernel events")


def same_gpu(report, setting):
    """Two workers on one GPU that do not call themselves machines: NCCL itself would refuse them; ours says why."""
    layers = setting.train(setting.small(1)).logged("layers")
    try:
        setting.train([*setting.small(2), "--transport=NCCL", "--connect-timeout=10", "--rejoin-timeout=5"], limit=60,
                      plans=[pipeline.plan(2, layers, 2, 2)])
        said = "nothing: they trained"
    except pipeline.Broken as problem:
        said = str(problem)
    report.judge("same GPU" in said, "nccl", "two workers on one GPU as they are", said, "refused by name")


def nccl(report, setting):
    if not setting.rehearse:
        same_gpu(report, setting)
    run = over_nccl(report, setting, "nccl")
    if run is None:
        return
    nccl_account(report, "nccl", run)
    plain = over_nccl(report, setting, "nccl", environment=lambda i: {**as_machine(i), "NCCL_PROFILER_PLUGIN": "none"})
    if plain is not None:
        report.add("INFO", "nccl", "step with the profiler against none", f"{run.step_seconds() / plain.step_seconds():.3f} x")


def nccl_sizes(report, setting):
    """Where NCCL takes processes for machines: messages from small to large between two ranks until one does not arrive, a
    communicator of four ranks, and what it takes to make all links anew when layers move."""
    part = "nccl-sizes"
    transport, environment = (["--transport=TCP"], None) if setting.rehearse else (NCCL, as_machine)
    layers = setting.train(setting.small(1)).logged("layers")

    def tried(what, plans, **more):
        begin = time.monotonic()
        try:
            run = setting.train([*setting.small(4), *transport], plans=plans, environment=environment, limit=RUN_LIMIT, **more)
        except pipeline.Broken as problem:
            return report.add("INFO", part, what, f"refused: {problem}")
        report.add("INFO", part, what, f"arrive, {run.step_seconds(skip=1) * 1e3:.1f} ms a step, the run {time.monotonic() - begin:.0f} s")
        return run

    kilobytes = 8 if setting.rehearse else 256 * 192 * 4 / 1e3  # a sample's activations
    for size in (1, 2) if setting.rehearse else (1, 16, 128):
        if tried(f"2 ranks, messages of {size * kilobytes / 1e3:.2f} MB", [pipeline.plan(2, layers, 2, size)]) is None:
            break
    tried("4 ranks in one communicator, sums of all gradients", [pipeline.plan(1, layers, 4, 1, replicas=4)])
    moved = {**pipeline.plan(2, layers, 2, 2, revision=2, ranges=[[0, 1], [2, layers - 1]]), "trigger": "Regroup", "state": "Move"}
    run = tried("links made anew when layers move", [pipeline.plan(2, layers, 2, 2), moved], every=2)
    if run is not None and run.lines("link_seconds"):
        report.add("INFO", part, "making the links: first, again", ", ".join(f"{line['link_seconds']} s" for line in run.lines("link_seconds")))


def replicas(report, setting):
    four_processes(report, setting, "replicas", ["--transport=TCP"], replicas=2)


def replicas_nccl(report, setting):
    run = over_nccl(report, setting, "replicas-nccl", replicas=2)
    if run is not None:
        nccl_account(report, "replicas-nccl", run)


def killed_by(report, setting, part, arguments, environment=None):
    """3 stages that save; the one in the middle dies, comes back, and all go on from the checkpoint."""
    steps, every = (60, 20) if setting.rehearse else (120, 40)
    common = setting.small(steps)
    alone = setting.train([*common, "--micro-batches=4", "--micro-batch-size=2"])
    layers = alone.logged("layers")
    plans = [pipeline.plan(3, layers, 4, 2), {**pipeline.plan(3, layers, 4, 2, revision=2), "trigger": "Restart", "state": "Checkpoint"}]
    with temporary_folder() as folder:
        run = setting.train([*common, *arguments, f"--checkpoint-dir={folder}", "--checkpoint-interval=10"], plans=plans, every=every,
                            killed=1, environment=environment, limit=RUN_LIMIT)
    report.judge(run.exact == alone.exact, part, "losses against one process, with a worker killed",
                 "equal bits" if run.exact == alone.exact else "differ", "equal bits")
    again = len(run.times) - steps
    report.judge(0 <= again <= every, part, "steps done twice", str(again), f"0 to {every}")
    report.add("INFO", part, "from the death to the first step after it", f"{run.recovery_seconds:.1f} s")


def killed(report, setting):
    killed_by(report, setting, "killed", ["--transport=TCP"])


def killed_nccl(report, setting):
    """The others abort their communicators and make new ones."""
    if setting.rehearse:
        return report.add("SKIP", "killed-nccl", "3 processes", "needs a GPU")
    try:
        return killed_by(report, setting, "killed-nccl", ["--transport=NCCL", "--connect-timeout=30"], as_machine)
    except pipeline.Broken as problem:
        return report.add("INFO", "killed-nccl", "3 processes on one GPU", f"refused: {problem}")


def averages_by(report, setting, part, arguments, environment=None):
    """4 replicas of one stage in pairs, against one process with exact steps; the run."""
    steps, micro_batches = (6, 4) if setting.rehearse else (40, 8)
    common = setting.small(steps)
    alone = setting.train([*common, f"--micro-batches={micro_batches}", "--micro-batch-size=2"])
    in_pairs = {**pipeline.plan(1, alone.logged("layers"), micro_batches, 2, replicas=4),
                "sync": {"mode": "Partial", "groupSizeMin": 2, "groupSizeMax": 2, "maxStaleness": 6, "graceWindowPercent": 15,
                         "connectEvery": 10}}
    run = setting.train([*common, *arguments], plans=[in_pairs], environment=environment, limit=RUN_LIMIT)
    off = run.losses[-1] / alone.losses[-1] - 1
    report.judge(abs(off) <= 0.1, part, f"last loss of {steps} steps against exact steps", f"{100 * off:+.1f} %", "10 %")
    report.add("INFO", part, "step against one process", f"{run.step_seconds() / alone.step_seconds():.2f} x")
    return run


def averages(report, setting):
    averages_by(report, setting, "averages", ["--transport=TCP"])


def averages_nccl(report, setting):
    if setting.rehearse:
        return report.add("SKIP", "averages-nccl", "4 processes", "needs a GPU")
    try:
        run = averages_by(report, setting, "averages-nccl", NCCL, as_machine)
    except pipeline.Broken as problem:
        return report.add("INFO", "averages-nccl", "4 processes on one GPU", f"refused: {problem}")
    told = run.lines("rounds_made")
    made, found = (sum(line[key] for line in told) for key in ("rounds_made", "rounds_found"))
    report.judge(made > 0, "averages-nccl", "rounds that found their communicator, that made one", f"{found}, {made}", "some by NCCL")
    seconds = sum(line["making_seconds"] for line in told)
    return report.add("INFO", "averages-nccl", "making a communicator of a pair", f"{seconds / made:.3f} s" if made else "none made")


def switch(report, setting):
    """Two stages: the last step before a change of k and the first one after it, against the others of the same plans."""
    every, micro_batches, changes = (6, 4, 4) if setting.rehearse else (8, 8, 12)
    steps = 2 * every * (changes + 1)  # a plan comes into force some steps after it was given
    model = setting.small(8 * steps) if setting.rehearse else ["--model=gpt-125m", "--seq=512", "--precision=bf16", f"--steps={steps}"]
    layers = 8 if setting.rehearse else 14
    size = 2 if setting.rehearse else 8
    plans = [pipeline.plan(2, layers, micro_batches, size, revision=i + 1, k=1 + i % 2) for i in range(changes + 1)]
    run = setting.train([*model, "--transport=TCP"], plans=plans, every=every)
    spans = run.spans()
    report.judge(len(spans) > changes // 2, "switch", "changes of k that took effect", f"{len(spans) - 1} of {changes}",
                 f">= {changes // 2}")
    costs, usual = [], []
    for (begin, end), (_, later) in zip(spans, spans[1:]):
        before, after = run.times[begin + 1:end - 1], run.times[end + 1:later - 1]
        if min(len(before), len(after)) < 2 or begin == 0:  # the first steps of a run warm up
            continue
        middle = [sorted(times)[len(times) // 2] for times in (before, after)]
        costs.append((run.times[end - 1] - middle[0] + run.times[end] - middle[1]) / middle[1])
        usual += [abs(time / middle[1] - 1) for time in after]
    if not costs:
        return report.add("FAIL", "switch", "cost of a change", "too few steps between the changes")
    median = sorted(costs)[len(costs) // 2]
    verdict = "INFO" if setting.rehearse else "PASS" if median < 0.01 else "FAIL"
    return report.add(verdict, "switch", f"a change of k, median of {len(costs)}, of a step",
                      f"{100 * median:+.2f} % ({100 * min(costs):+.1f} .. {100 * max(costs):+.1f}; other steps differ by "
                      f"{100 * sorted(usual)[len(usual) // 2]:.1f} %)", "< 1 %")
