"""Figures: the papers' claims, one by one."""

from __future__ import annotations

from typing import Any

from bench.evidence.verdicts import dualmap, dualmap_scaling, lbgr, mooncake, ours, rlt


def figures() -> dict[str, Any]:
    """Return the figures and the verdict of each claim, by the paper and the claim's name."""
    papers = {
        "dualmap": dualmap,
        "scaling": dualmap_scaling,
        "mooncake": mooncake,
        "rlt": rlt,
        "lbgr": lbgr,
        "ours": ours,
    }
    return {name: paper.claims() for name, paper in papers.items()}
