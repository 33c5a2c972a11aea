"""The second half of a decision with separate prefill and decode: which engine decodes, and why."""

from __future__ import annotations

import msgspec

MIXED, PREFILL, DECODE = "mixed", "prefill", "decode"
"""An engine's part of each request."""


class DecodeCandidate(msgspec.Struct, frozen=True, gc=False):
    """One scored decode engine, with this request counted in."""

    engine_id: str
    tpot_s: float
    """Expected seconds between tokens."""
    batch: int
    """Requests that would decode there, those whose prefill still runs among them."""
    context_tokens: int
    """Prompt tokens that they attend to."""
    room_tokens: int | None
    """KV memory left before this request; None: not reported."""
    fits: bool


class EnginePair(msgspec.Struct, frozen=True, gc=False):
    """A prefill engine's partner for one request (Mooncake Alg. 1, line 17). The decision names the prefill engine."""

    pairing_id: str
    """Names this attempt of this request on these two engines: 1 to 19 digits, a positive 63-bit number."""
    engine_id: str
    incarnation: int
    reason: str
    """A code of routing.values.reasons."""
    tpot_s: float
    need_tokens: int
    """KV memory that was reserved for it there."""
    candidates: tuple[DecodeCandidate, ...] = ()
    """The best few, the chosen one first."""
