"""Short memory, mechanisms left out, advisories missed or for nobody, caches on disk (SYMPHONY Figs 17, 19, 20)."""

from __future__ import annotations

from bench.evidence.measure.sessions.session_cases import ONE, Case, cases, measure_cases
from bench.evidence.store import Result

SHORT_MEMORY = 119_000
"""KV tokens of an engine's memory, the study's."""
ABLATION_USERS = (896,)
ABLATED = ("symphony_pinned", "symphony_oldest_first", "symphony_whole_loads")
MISSED_USERS = (256, 512)
SPURIOUS = 0.6
SPURIOUS_USERS_13B = (128, 192)


def asked() -> list[Case]:
    """Return all cases; what they are compared with is in session_loads where nothing is changed."""
    return [
        *cases(("ours",), (896,), hbm_tokens=SHORT_MEMORY),
        *cases(("ours",), MISSED_USERS, missed=0.1),
        *cases(("symphony", *ABLATED), ABLATION_USERS, seeds=ONE, hbm_tokens=SHORT_MEMORY),
        *(each for missed in (0.1, 1.0) for each in cases(("symphony",), MISSED_USERS, seeds=ONE, missed=missed)),
        *cases(("symphony",), SPURIOUS_USERS_13B, seeds=ONE, spurious=SPURIOUS, model="13b"),
    ]


def measure(jobs: int) -> Result:
    """Run every case."""
    return measure_cases("session_limits", asked(), jobs)
