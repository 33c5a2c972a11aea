"""Figures of automation with real processes: sick engines, growing and shrinking, and random kills."""

from __future__ import annotations

from typing import Any

from bench.engines.sick_engines import BACK_LIMIT_S, FULL_LIMIT_S, SERVING_S
from bench.evidence.store import Row, load

WORDS = {
    "hang": "hangs: accepts requests and answers none",
    "compile": "compiles for 20 s, and goes on by itself",
    "stop": "is stopped (SIGSTOP)",
    "crawl": "is slow: everything takes twenty times as long",
    "lie": "hangs while its counters grow",
    "idle": "hangs and reports that it is idle",
    "sleep": "sleeps, as vLLM does, and answers 200",
    "flap": "dies and returns every few seconds",
    "flap_again": "the same engine flaps once more",
    "frozen": "serves, with frozen metrics",
    "garbage": "serves, with nonsensical metrics",
    "busy": "serves, and answers probes after 3 s",
}
SERVING = ("frozen", "garbage", "busy")
_STEP_S = 5.0
_SOAK_COLUMNS = (
    "seed", "minutes", "requests", "asked_again", "broken_off", "lost", "killed_worker", "killed_beat",
    "killed_gateway", "killed_engine", "killed_web", "orders", "effects", "calls", "orphans",
)  # fmt: skip


def faults() -> list[Row]:
    """Return the runs with a fault."""
    return [row for row in load("sick_engines").rows if row["kind"] in WORDS]


def healthy() -> Row:
    """Return the run without a fault."""
    return load("sick_engines").find(kind="none")


def scaled() -> Row:
    """Return the run that grows and shrinks."""
    (row,) = load("scaling_live").rows
    return row


def figures() -> dict[str, Any]:
    """Return the text's figures."""
    sick, scaling, soak = load("sick_engines"), load("scaling_live"), load("soak")
    return {
        "sick": sick.settings,
        "sick_command": sick.command,
        "faults": [row | {"words": WORDS[row["kind"]], "serves": row["kind"] in SERVING} for row in faults()],
        "serving_s": SERVING_S,
        "back_limit_s": BACK_LIMIT_S,
        "full_limit_s": FULL_LIMIT_S,
        "healthy": healthy(),
        "wrongly": len(healthy()["wrongly"]),
        "all": sick.find(kind="all"),
        "scaling": scaling.settings,
        "scaling_command": scaling.command,
        "scaled": scaled(),
        "step_s": _STEP_S,
        "soak_command": soak.command,
        "soaks": [row | {"found": [row[column] for column in _SOAK_COLUMNS]} for row in soak.rows],
        "wrong": sum(row["wrong"] for row in soak.rows),
    }
