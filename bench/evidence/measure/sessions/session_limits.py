"""Short memory, omitted mechanisms, missed or spurious advisories, caches on disk (SYMPHONY Figs 17, 19, 20)."""

from __future__ import annotations

from typing import Any

from bench.evidence.measure.sessions.session_cases import Case, cases, measure_cases
from bench.evidence.store import Result

SHORT_MEMORY = 119_000
"""KV tokens of an engine's memory in the study."""
ABLATION_USERS = (896,)
ABLATED = ("symphony_pinned", "symphony_oldest_first", "symphony_whole_loads")
MISSED_USERS = (256, 512)
SPURIOUS = 0.6
SPURIOUS_USERS_13B = (128, 192)
LIMIT_USERS = 512
"""Users in the cases of spurious advisories and of caches on disk."""
AMPLE_GB, SHORT_GB = 800.0, 200.0
"""DRAM per node that holds all caches, and the testbed's."""
ON_DISK: dict[str, Any] = {"cache_on": "disk", "lead_s": 11.0, "dram_gb": AMPLE_GB}
FRESH_USERS = 64


def asked() -> list[Case]:
    """Return all cases. session_loads has the unchanged ones for comparison."""
    return [
        *cases(("ours",), (896,), hbm_tokens=SHORT_MEMORY),
        *(case for missed in (0.1, 1.0) for case in cases(("ours",), MISSED_USERS, missed=missed)),
        *cases(("ours",), (LIMIT_USERS,), dram_gb=AMPLE_GB),
        *(
            case
            for gb in (AMPLE_GB, SHORT_GB)
            for case in cases(("ours",), (LIMIT_USERS,), spurious=SPURIOUS, dram_gb=gb)
        ),
        *cases(("ours",), (LIMIT_USERS,), **ON_DISK),
        *cases(("ours", "recompute"), (FRESH_USERS,), fresh=True),
        *cases(("symphony", *ABLATED), ABLATION_USERS, hbm_tokens=SHORT_MEMORY),
        *(case for missed in (0.1, 1.0) for case in cases(("symphony",), MISSED_USERS, missed=missed)),
        *cases(("symphony",), SPURIOUS_USERS_13B, spurious=SPURIOUS, model="13b"),
    ]


def measure(jobs: int) -> Result:
    """Run every case."""
    return measure_cases("session_limits", asked(), jobs)
