"""Free loopback ports, chosen below the range from which the kernel takes ports for outgoing connections.

A port of that range could be given to some client while our service restarts, and a client that retries a closed
port there may even connect to itself (RFC 9293 section 3.5, simultaneous open).
"""

from __future__ import annotations

import random
import socket

LOOPBACK = "127.0.0.1"
RANGE = range(20_000, 30_000)
# Usual ports of services that their owner may start later.
AVOIDED = frozenset({25_565, 25_672, 26_257, 26_379, 27_015, 27_017, 27_018, 27_019, 28_015, 29_092})
TRIES = 500


class NoFreePort(RuntimeError):
    """Nothing could be bound in RANGE."""


def free_ports(count: int) -> list[int]:
    """`count` different TCP ports on which nothing listens at this moment; raises NoFreePort."""
    found: list[int] = []
    for port in random.sample(RANGE, TRIES):
        if len(found) == count:
            break
        if port not in AVOIDED and is_free(port):
            found.append(port)
    if len(found) < count:
        raise NoFreePort(f"no free port between {RANGE.start} and {RANGE.stop} on {LOOPBACK}")
    return found


def is_free(port: int) -> bool:
    """Whether a server could listen on this loopback port: on all addresses too, which Docker's proxy may hold."""
    for address in (LOOPBACK, "0.0.0.0"):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            # As servers do: connections of one that has just stopped, in TIME_WAIT, do not hold its port.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, port))
            except (OSError, OverflowError):  # taken, or no port at all
                return False
    return True
