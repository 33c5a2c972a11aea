"""Why requests were rejected, in the few words of a tile (frontend/fleet/queue/queue_figures.js writes the same)."""

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
    """Return a code in words; an unknown code is returned as it is."""
    return _WORDS.get(code, code.replace("_", " "))


def rejected_words(rejections: Mapping[str, float]) -> str:
    """Return how many requests are rejected and why: "29 /s rejected, mostly queue full"; "" where none is."""
    if not rejections:
        return ""
    often = max(sorted(rejections), key=lambda code: rejections[code])
    mostly = "mostly " if len(rejections) > 1 else ""
    return f"{rate(sum(rejections.values()))}{NARROW_SPACE}/s rejected, {mostly}{rejection_word(often)}"
