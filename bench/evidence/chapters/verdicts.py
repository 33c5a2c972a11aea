"""Figures of each claim of the papers."""

from __future__ import annotations

from typing import Any

from bench.evidence.verdicts import (
    advisories,
    dualmap,
    dualmap_scaling,
    lbgr,
    mooncake,
    mooncake_store,
    ours,
    rlt,
    skywalker,
    symphony,
)


def figures() -> dict[str, Any]:
    """Return the figures and the verdict of each claim, by paper and claim name."""
    papers = {
        "dualmap": dualmap,
        "scaling": dualmap_scaling,
        "mooncake": mooncake,
        "store": mooncake_store,
        "rlt": rlt,
        "lbgr": lbgr,
        "skywalker": skywalker,
        "symphony": symphony,
        "advisories": advisories,
        "ours": ours,
    }
    return {name: paper.claims() for name, paper in papers.items()}
