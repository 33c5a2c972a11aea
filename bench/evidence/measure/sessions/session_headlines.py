"""The figures of SYMPHONY's abstract and §4.2 that are judged with seeds that no earlier run used."""

from __future__ import annotations

from bench.evidence.measure.sessions.session_cases import Case, cases, measure_cases
from bench.evidence.store import Result

SEEDS = (21, 22, 23)
USERS = (256, 512)
MOST_USERS = 1024


def asked() -> list[Case]:
    """Return all cases."""
    return [
        *cases(("recompute", "symphony", "ours"), USERS),
        *cases(("sticky", "migrate", "symphony", "ours"), (MOST_USERS,)),
    ]


def measure(jobs: int) -> Result:
    """Run every case."""
    return measure_cases("session_headlines", asked(), jobs, SEEDS)
