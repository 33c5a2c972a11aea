"""Projects of agents, by number of files and by number of concurrent projects (SYMPHONY Fig. 16)."""

from __future__ import annotations

import msgspec

from bench.evidence.measure.sessions.session_cases import FIGURES, Case, cases, measure_cases
from bench.evidence.store import Result

PROJECTS = ((32, 4), (32, 8), (32, 12), (8, 12), (64, 12))
"""Concurrent projects, and the files that each one writes."""
SYSTEMS = ("recompute", "sticky", "symphony", "ours")


def asked() -> list[Case]:
    """Return all cases."""
    runs = [case for users, files in PROJECTS for case in cases(SYSTEMS, (users,), "agents", files=files)]
    return [msgspec.structs.replace(item, figures=(*FIGURES, "project_s")) for item in runs]


def measure(jobs: int) -> Result:
    """Run every case."""
    return measure_cases("session_agents", asked(), jobs)
