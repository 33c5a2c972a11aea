"""Loopback ports of engines that the supervisor starts: HTTP, KV events and KV replay."""

from __future__ import annotations

from controlplane.fleet.free_ports import LOOPBACK
from controlplane.fleet.models.engine import Engine

PORTS_PER_ENGINE = 3


def engine_ports(engine: Engine) -> tuple[int, int, int]:
    """Return the HTTP, KV-event and KV-replay ports of a supervised engine."""
    addresses = (engine.connect_url, engine.kv_events_endpoint, engine.kv_replay_endpoint)
    http, events, replay = (int(address.rsplit(":", 1)[1]) for address in addresses)
    return http, events, replay


def engine_url(scheme: str, port: int) -> str:
    """Return the loopback address of a supervised engine's port."""
    return f"{scheme}://{LOOPBACK}:{port}"
