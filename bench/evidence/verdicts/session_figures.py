"""Figures of sessions by case, and ratios of two cases, seed by seed."""

from __future__ import annotations

from functools import cache
from statistics import median
from typing import Any

from bench.evidence.store import Result, Row, load

TOLERANCE, PAST_SATURATION, TTFT_TOLERANCE = 0.03, 0.10, 0.15
"""Tolerances of a median ratio up to 768 users and above, and of mean TTFT."""

_results = cache(load)


def case(system: str, users: int, workload: str = "chat", result: str = "session_loads", **options: Any) -> Row:
    """Return the row of one case."""
    rows: Result = _results(result)
    return rows.find(workload=workload, system=system, users=users, options=options)


def project(system: str, users: int, files: int) -> Row:
    """Return the row of an agent project."""
    return case(system, users, "agents", "session_agents", files=files)


def limits(system: str, users: int, **options: Any) -> Row:
    """Return the row of one case at a limit: short memory, missed or spurious advisories."""
    return case(system, users, result="session_limits", **options)


def ratios(over: Row, of: Row, figure: str) -> list[float]:
    """Return the ratio of two rows' figures for each seed that both have."""
    return [one / other for one, other in zip(over[figure], of[figure], strict=False)]


def ratio(over: Row, of: Row, figure: str) -> float:
    """Return the median of the seeds' ratios."""
    return median(ratios(over, of, figure))


def tolerance(users: int) -> float:
    """Return the tolerance of a median ratio at this number of users."""
    return TOLERANCE if users <= 768 else PAST_SATURATION
