"""Conversations, some of them with priority (SYMPHONY Fig. 21)."""

from __future__ import annotations

import msgspec

from bench.evidence.measure.sessions.session_cases import FIGURES, Case, cases, measure_cases
from bench.evidence.store import Result

SHARES = (0.1, 0.3, 0.5)
USERS = 384
SYSTEMS = ("recompute", "symphony")
_BY_CLASS = ("priority_tpot_ms", "priority_ttft_s", "regular_tpot_ms", "regular_ttft_s")


def asked() -> list[Case]:
    """Return all cases."""
    runs = [case for share in SHARES for case in cases(SYSTEMS, (USERS,), priority=share)]
    return [msgspec.structs.replace(item, figures=(*FIGURES, *_BY_CLASS)) for item in runs]


def measure(jobs: int) -> Result:
    """Run every case."""
    return measure_cases("session_priorities", asked(), jobs)
