"""The latency of SYMPHONY's abstract, with seeds that no earlier run used."""

from __future__ import annotations

from bench.evidence.measure.sessions.session_cases import Case, cases, measure_cases
from bench.evidence.store import Result

SEEDS = (21, 22)
USERS = (256,)


def asked() -> list[Case]:
    """Return all cases."""
    return cases(("recompute", "symphony", "ours"), USERS)


def measure(jobs: int) -> Result:
    """Run every case."""
    return measure_cases("session_headlines", asked(), jobs, SEEDS)
