#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A long path between two network namespaces: a device in each, whose packets arrive in the other one after a delay.

usage: long_path.py NAMESPACE_A NAMESPACE_B MILLISECONDS     (one way; root; runs until it is ended)
The devices are tun0 with 10.251.0.1 and 10.251.0.2. Their packets are large, so that few of them make a fast path.
"""
import ctypes
import fcntl
import os
import queue
import struct
import subprocess
import sys
import threading
import time

MTU = 60000
TUNSETIFF, IFF_TUN, IFF_NO_PI, CLONE_NEWNET = 0x400454CA, 0x0001, 0x1000, 0x40000000


def device(namespace: str, address: str) -> int:
    """The descriptor of a new tun0 in that namespace; it stays there whatever namespace this process is in."""
    entered = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).setns(entered, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), f"namespace {namespace}")
    os.close(entered)
    tun = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", b"tun0", IFF_TUN | IFF_NO_PI))
    for command in ("link set lo up", f"addr add {address}/24 dev tun0", f"link set tun0 mtu {MTU} up txqueuelen 10000"):
        subprocess.run(["ip", *command.split()], check=True)
    return tun


def carry(source: int, target: int, delay: float) -> None:
    packets: queue.SimpleQueue = queue.SimpleQueue()

    def read() -> None:
        while True:
            packet = os.read(source, MTU + 100)
            packets.put((time.monotonic() + delay, packet))

    threading.Thread(target=read, daemon=True).start()
    while True:
        due, packet = packets.get()
        wait = due - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        os.write(target, packet)


def main() -> None:
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    a, b = device(sys.argv[1], "10.251.0.1"), device(sys.argv[2], "10.251.0.2")
    delay = float(sys.argv[3]) / 1000
    print("ready", flush=True)
    threading.Thread(target=carry, args=(b, a, delay), daemon=True).start()
    carry(a, b, delay)


if __name__ == "__main__":
    main()
