"""Finds free loopback ports for supervised engines."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence

from controlplane.fleet.models.engine import Engine

LOOPBACK = "127.0.0.1"
_HIGHEST = 32_000
"""Highest port used. Above it, systems choose local ports of outgoing connections, which could collide."""


class NoFreePortError(RuntimeError):
    """Every port of the range is in use."""


def free_ports(count: int, *, start: int, taken: Iterable[int] = ()) -> list[int]:
    """Return the `count` lowest free ports from `start` that are not in `taken`. Raises NoFreePortError."""
    avoided = set(taken)
    ports: list[int] = []
    for port in range(start, _HIGHEST):
        if len(ports) == count:
            break
        if port not in avoided and is_free(port):
            ports.append(port)
    if len(ports) < count:
        raise NoFreePortError(f"no {count} free ports between {start} and {_HIGHEST}; set HEADWAY_DEMO_PORTS_FROM")
    return ports


def is_free(port: int) -> bool:
    """Return whether a listener can bind the loopback port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do: a port in TIME_WAIT after a restart is free, one with a listener is not.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


PORTS_PER_ENGINE = 3


def engine_ports(engine: Engine) -> tuple[int, int, int]:
    """Return the HTTP, KV-event and KV-replay ports of a supervised engine."""
    addresses = (engine.connect_url, engine.kv_events_endpoint, engine.kv_replay_endpoint)
    http, events, replay = (int(address.rsplit(":", 1)[1]) for address in addresses)
    return http, events, replay


def engine_ports_in_use() -> set[int]:
    """Return the ports of all supervised engines."""
    return {port for engine in Engine.objects.filter(supervised=True) for port in engine_ports(engine)}


def engine_addresses(ports: Sequence[int]) -> dict[str, str]:
    """Return the address fields of a supervised engine with these three ports."""
    http, events, replay = ports
    return {
        "url": engine_url("http", http),
        "kv_events_endpoint": engine_url("tcp", events),
        "kv_replay_endpoint": engine_url("tcp", replay),
    }


def engine_url(scheme: str, port: int) -> str:
    """Return the loopback address of a supervised engine's port."""
    return f"{scheme}://{LOOPBACK}:{port}"
