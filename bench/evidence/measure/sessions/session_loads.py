"""Systems over the number of users: conversations, bursts, prefills only (SYMPHONY Figs 11 to 15 and 18)."""

from __future__ import annotations

from bench.evidence.measure.sessions.session_cases import Case, cases, measure_cases
from bench.evidence.store import Result

USERS = (64, 128, 256, 512, 768, 1024)
LATE_USERS = (256, 512, 768)
"""Users from where systems with caches differ, up to where the first of them collapses."""
USERS_13B = (64, 128, 192)
BURST_USERS = (768,)
STORE_USERS = (768, 1024)
PREFILL_USERS = (512,)


def asked() -> list[Case]:
    """Return all cases."""
    return [
        *cases(("recompute", "ours", "ondemand"), USERS[:-1]),
        *cases(("sticky",), LATE_USERS),
        *cases(("ours", "ondemand"), (1024,)),
        *cases(("symphony",), USERS),
        *cases(("migrate",), LATE_USERS),
        *cases(("recompute", "symphony", "ours"), USERS_13B, model="13b"),
        *cases(("recompute", "sticky", "symphony", "ours"), BURST_USERS, "burst"),
        *cases(("recompute", "sticky", "migrate"), PREFILL_USERS, "prefill"),
        *cases(("symphony", "ours"), PREFILL_USERS, "prefill"),
        *cases(("lossy_store",), STORE_USERS),
        *cases(("symphony",), STORE_USERS, compressed=True),
    ]


def measure(jobs: int) -> Result:
    """Run every case."""
    return measure_cases("session_loads", asked(), jobs)
