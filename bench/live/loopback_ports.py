"""Find free loopback ports for servers that take a port argument."""

from __future__ import annotations

import itertools
import os
import socket

_OF_WORKERS, _PER_WORKER, _WORKERS = 10_000, 500, 8
_OF_OTHERS, _MANY = 14_000, 4_000
"""Below the kernel's ephemeral ports, so that no connection takes a port before its server does."""


def _candidates() -> list[int]:
    """Return the ports of this process in its own order.

    The workers of one test run share no ports. Other processes start at different offsets.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
    first, many = (_OF_WORKERS + _PER_WORKER * (int(worker) % _WORKERS), _PER_WORKER) if worker else (_OF_OTHERS, _MANY)
    start = os.getpid() * 37 % many
    return [first + (start + offset) % many for offset in range(many)]


_candidate_ports = _candidates()
_ports = itertools.cycle(_candidate_ports)


def free_ports(count: int) -> list[int]:
    """Return different free ports. Each is returned again only after all the others."""
    return [free_port() for _ in range(count)]


def free_port() -> int:
    """Return a free port. Raises RuntimeError if all of this process's ports are taken."""
    for port in itertools.islice(_ports, len(_candidate_ports)):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"no free port among {len(_candidate_ports)}")
