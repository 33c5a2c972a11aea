"""Figures of sick engines that answer /health with 200."""

from __future__ import annotations

from typing import Any

from bench.evidence.measure.automation.health import (
    BURST_QPS,
    BURST_S,
    ENGINES,
    FAULT_S,
    HEALED_S,
    KINDS,
    PERIOD_S,
    QPS,
    UNGUARDED,
)
from bench.evidence.store import Row, load

WORDS = {
    "hang": "hangs: accepts requests and answers none",
    "compile": "compiles for 60 s: hangs, and goes on by itself",
    "crawl": "is slow: everything takes six times as long",
    "lie": "hangs while its counters grow",
    "stop": "is stopped (SIGSTOP): no probe is answered",
    "flap": "restarts every 20 s",
    "pause": "is paused and reports it",
    "never_starts": "starts nothing new and does not report it",
    "garbage": "serves, with nonsensical metrics",
    "frozen": "serves, with frozen metrics",
    "frozen_hang": "hangs after its metrics have been frozen for a while",
}
SERVING = ("garbage", "frozen")
"""Faults of the metrics only: the engine serves, so it becomes suspect and keeps its work."""


def row(kind: str, *, health: bool = True) -> Row:
    """Return the run of a fault."""
    return load("health").find(kind=kind, health=health)


def healthy() -> list[Row]:
    """Return the hours without a fault."""
    return load("health").where(kind="none")


def wrongly_quarantined() -> int:
    """Return the number of engines quarantined in the hours without a fault."""
    return sum(len(item["wrongly"]) for item in healthy())


def figures() -> dict[str, Any]:
    """Return the figures of the text."""
    hours = healthy()
    rows = [
        row(kind) | {"words": WORDS[kind], "unguarded": row(kind, health=False) if kind in UNGUARDED else None}
        for kind in KINDS
    ]
    return {
        "engines": ENGINES,
        "fault_s": FAULT_S,
        "healed_s": HEALED_S,
        "qps": QPS,
        "burst_qps": BURST_QPS,
        "burst_s": BURST_S,
        "period_s": PERIOD_S,
        "rows": rows,
        "hours": len(hours),
        "wrongly": wrongly_quarantined(),
        "suspects": sum(hour["suspects"] for hour in hours),
        "worst": min(hour["on_time"] for hour in hours),
    }
