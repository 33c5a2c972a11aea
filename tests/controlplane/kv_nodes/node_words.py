"""Reports of a KV node, for tests."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from controlplane.kv_nodes.models.kv_node import KvNode
from controlplane.kv_nodes.registration import report_node
from controlplane.platform.actor import program

NODES = program("test")
REPORT = {"tiers": [{"medium": "CPU", "slots": 8, "used_slots": 3, "hits": 5}], "blocks": 3, "misses": 2}


def word(**changes: Any) -> dict[str, Any]:
    """Return the fields of a node's report, with changes."""
    return {
        "incarnation": 1,
        "address": "127.0.0.1:8470",
        "events_endpoint": "tcp://127.0.0.1:8471",
        "replay_endpoint": "tcp://127.0.0.1:8472",
        "slot_bytes": 4096,
        "state": "serving",
        **changes,
    }


def reported(name: str = "kv-1", *, now: datetime | None = None, report: Any = None, **changes: Any) -> KvNode:
    """Store a report of a node."""
    return report_node(
        name, word(**changes), REPORT if report is None else report, now=now or timezone.now(), actor=NODES
    )


def seconds_later(now: datetime, seconds: float) -> datetime:
    """Return the time this many seconds later."""
    return now + timedelta(seconds=seconds)
