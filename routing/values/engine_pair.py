"""The decode half of a decision with separate prefill and decode engines: the decode engine and the reason."""

from __future__ import annotations

import msgspec

MIXED, PREFILL, DECODE = "mixed", "prefill", "decode"
"""An engine's part of each request."""


class DecodeCandidate(msgspec.Struct, frozen=True, gc=False):
    """One scored decode engine, including this request."""

    engine_id: str
    tpot_s: float
    """Expected seconds between tokens."""
    batch: int
    """Requests that would decode there, including those still in prefill."""
    context_tokens: int
    """Prompt tokens that these requests attend to."""
    room_tokens: int | None
    """Free KV memory before this request, None if not reported."""
    fits: bool


class EnginePair(msgspec.Struct, frozen=True, gc=False):
    """A prefill engine's partner for one request (Mooncake Alg. 1, line 17). The decision names the prefill engine."""

    pairing_id: str
    """Identifies this attempt of this request on these two engines: 1 to 19 digits, a positive 63-bit number."""
    engine_id: str
    incarnation: int
    reason: str
    """A code of routing.values.reasons."""
    tpot_s: float
    need_tokens: int
    """KV memory reserved for it there."""
    candidates: tuple[DecodeCandidate, ...] = ()
    """The best candidates, chosen one first."""
