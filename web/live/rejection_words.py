"""Why requests were rejected, in a tile's few words (frontend/fleet/queue/queue_figures.js writes the same)."""

from __future__ import annotations

from collections.abc import Mapping

from controlplane.platform.format import NARROW_SPACE, rate
from routing.values import reasons

_WORDS = {
    reasons.NO_ENGINE: "no engine available",
    reasons.QUEUE_FULL: "queue full",
    reasons.GATEWAY_LATE: "gateway late",
    reasons.WAIT_EXPIRED: "max wait reached",
    reasons.DEADLINE_PASSED: "deadline passed",
    reasons.INFEASIBLE: "SLO-infeasible",
    reasons.PREFILL_OVERLOAD: "prefill overloaded",
    reasons.DECODE_OVERLOAD: "decode overloaded",
}


def rejection_word(code: str) -> str:
    """Return a rejection code in words; an unknown code is returned unchanged."""
    return _WORDS.get(code, code.replace("_", " "))


def rejected_words(rejections: Mapping[str, float]) -> str:
    """Return the rejection rate and its main reason: "29 /s rejected, mostly queue full"; "" without rejections."""
    if not rejections:
        return ""
    often = max(sorted(rejections), key=lambda code: rejections[code])
    mostly = "mostly " if len(rejections) > 1 else ""
    return f"{rate(sum(rejections.values()))}{NARROW_SPACE}/s rejected, {mostly}{rejection_word(often)}"
