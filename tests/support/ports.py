# SPDX-License-Identifier: Apache-2.0
"""Ports for servers that tests start by number."""
import pathlib
import random
import socket

# Linux gives ports from here on to whoever asks for any port: one of them could be taken before the server that shall have it listens.
GIVEN_AWAY = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
FIRST, END = 10000, GIVEN_AWAY if GIVEN_AWAY > 12000 else 65536


def free_port():
    """A port of 127.0.0.1 on which nobody listens."""
    while True:
        port = random.randrange(FIRST, END)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
