#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Steps of torch.distributed.pipelining (gloo, CPU) with the compute and messages of schedule_bench:
S=4, M=32, 10 ms forward and 20 ms backward by sleeping, 128 KiB a micro-batch, links limited alike. Its 1F1B and GPipe are
the peers of our plans. Needs torch in the Python that runs it (python3 -m venv X; X/bin/pip install
torch); without it the program says so and ends with 77.

usage: torch_peer.py [--steps N] [--c MS]...
  --c MS   transfer time of a micro-batch over each link and direction, by HTB between network
           namespaces (root); 0, the default, is loopback
"""
import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

STAGES, MICRO_BATCHES, WARM_UP = 4, 32, 3
FORWARD, BACKWARD = 0.010, 0.020
SHAPE = (2, 128, 128)  # samples, tokens, floats: 128 KiB
MESSAGE_BYTES = 2 * 128 * 128 * 4
BURST = 3 * 1514  # as namespaces.cpp
SKIPPED = 77


def rank_main(args):
    import torch
    import torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

    torch.set_num_threads(1)
    late = []

    def sleep(seconds):  # until an absolute time, as the workers' emulated ops do
        deadline = time.monotonic() + seconds
        time.sleep(max(0.0, deadline - time.monotonic()))
        late.append(time.monotonic() - deadline)

    class Emulated(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight):
            sleep(FORWARD)
            return x * weight

        @staticmethod
        def backward(ctx, gradient):
            sleep(BACKWARD)
            return gradient.clone(), gradient.sum().reshape(1)

    class Stage(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(1))

        def forward(self, x):
            return Emulated.apply(x, self.weight)

    dist.init_process_group("gloo", init_method="file://" + args.store, rank=args.rank, world_size=STAGES)
    arriving = torch.zeros(SHAPE, requires_grad=args.rank > 0)  # what stages before send has a gradient
    leaving = torch.zeros(SHAPE, requires_grad=True)
    for name, kind in (("1F1B", Schedule1F1B), ("GPipe", ScheduleGPipe)):
        late.clear()
        stage = PipelineStage(Stage(), args.rank, STAGES, torch.device("cpu"), input_args=(arriving,),
                              output_args=leaving)
        schedule = kind(stage, MICRO_BATCHES, loss_fn=lambda output, target: (output - target).sum())
        batch = torch.zeros((SHAPE[0] * MICRO_BATCHES,) + SHAPE[1:])
        times = []
        for step in range(WARM_UP + args.steps):
            dist.barrier()
            start = time.monotonic()
            if args.rank == 0:
                schedule.step(batch)
            elif args.rank == STAGES - 1:
                schedule.step(target=batch, losses=[])
            else:
                schedule.step()
            if step >= WARM_UP:
                times.append(1e3 * (time.monotonic() - start))
        if args.rank == 0:  # its last backward ends the step
            times.sort()
            late.sort()
            print("%-5s c=%g  median %.1f ms  p10 %.1f  p90 %.1f  late p99 %.2f ms" % (
                name, args.c[0], statistics.median(times), times[len(times) // 10],
                times[9 * len(times) // 10], 1e3 * late[int(0.99 * len(late))]), flush=True)
    dist.destroy_process_group()


def sh(command, check=True):
    subprocess.run(command, shell=True, check=check, stdout=subprocess.DEVNULL,
                   stderr=None if check else subprocess.DEVNULL)


def tear_down():
    for rank in range(STAGES):
        sh("ip link del wpeer%d" % rank, check=False)  # at once; with its namespace it goes later
        sh("ip netns del weir-peer-%d" % rank, check=False)
    sh("ip link del weir-peer", check=False)


def set_up(milliseconds):
    """A namespace per rank on one bridge; each sends to each neighbour through a class of its own."""
    tear_down()
    bits = int(MESSAGE_BYTES * 8 * 1514 / 1448 / (milliseconds / 1e3))  # payload is not wire rate
    sh("ip link add weir-peer type bridge && ip link set weir-peer up")
    for rank in range(STAGES):
        ns = "weir-peer-%d" % rank
        sh("ip netns add %s && ip link add wpeer%d type veth peer name eth0 netns %s" % (ns, rank, ns))
        sh("ip link set wpeer%d master weir-peer up" % rank)
        sh("ip -n %s addr add 10.251.0.%d/24 dev eth0 && ip -n %s link set eth0 up && ip -n %s link set lo up"
           % (ns, rank + 1, ns, ns))
        inside = "ip netns exec %s " % ns
        sh("ip -n %s link set dev eth0 gso_max_segs 1" % ns)  # else 64 kB pass HTB in one piece
        sh(inside + "tc qdisc add dev eth0 root handle 1: htb default 99")
        for other in (rank - 1, rank + 1):
            if not 0 <= other < STAGES:
                continue
            sh(inside + "tc class add dev eth0 parent 1: classid 1:%d htb rate %d ceil %d burst %d cburst %d "
               "quantum 15000" % (other + 1, bits, bits, BURST, BURST))
            sh(inside + "tc filter add dev eth0 parent 1: protocol ip u32 match ip dst 10.251.0.%d flowid 1:%d"
               % (other + 1, other + 1))


def run(args, milliseconds):
    limited = milliseconds > 0
    ranks = []
    try:
        if limited:
            set_up(milliseconds)
        with tempfile.TemporaryDirectory() as folder:
            for rank in range(STAGES):
                command = ["ip", "netns", "exec", "weir-peer-%d" % rank] if limited else []
                command += [sys.executable, __file__, "--steps", str(args.steps), "--c", str(milliseconds),
                            "--rank", str(rank), "--store", os.path.join(folder, "store")]
                environment = dict(os.environ, GLOO_SOCKET_IFNAME="eth0" if limited else "lo")
                ranks.append(subprocess.Popen(command, env=environment))
            codes = [rank.wait(timeout=60 + 8 * args.steps) for rank in ranks]
        return max(abs(code) for code in codes)
    finally:
        for process in ranks:
            process.kill()
        if limited:
            tear_down()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--c", type=float, action="append")
    parser.add_argument("--rank", type=int, default=-1, help=argparse.SUPPRESS)
    parser.add_argument("--store", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.c = args.c or [0]
    if args.rank >= 0:
        return rank_main(args)
    try:
        import torch
    except ImportError:
        print("torch is not installed: skipped")
        return SKIPPED
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the namespaces go away
    print("torch %s, torch.distributed.pipelining over gloo, S=%d M=%d f=10 ms b=20 ms" % (
        torch.__version__, STAGES, MICRO_BATCHES))
    for milliseconds in args.c:
        if milliseconds > 0 and os.geteuid() != 0:
            print("c=%g: skipped, needs root" % milliseconds)
            continue
        code = run(args, milliseconds)
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
