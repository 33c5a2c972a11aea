"""The latency of SYMPHONY's abstract, and requests at its highest load, with seeds that no earlier run used."""

from __future__ import annotations

from bench.evidence.measure.sessions.session_cases import Case, cases, measure_cases
from bench.evidence.store import Result

SEEDS = (21, 22)
USERS = (256,)
BUSIEST = 1024
"""Users at which §4.2 compares requests."""


def asked() -> list[Case]:
    """Return all cases."""
    return [
        *cases(("recompute", "symphony", "ours"), USERS),
        *cases(("sticky", "migrate", "symphony", "ours"), (BUSIEST,)),
    ]


def measure(jobs: int) -> Result:
    """Run every case."""
    return measure_cases("session_headlines", asked(), jobs, SEEDS)
