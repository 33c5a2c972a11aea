"""One request's predicted and reported hit, and causes of a difference that the request itself shows."""

from __future__ import annotations

import msgspec

TOKENIZER = "tokenizer"
TEMPLATE = "template"
SALT = "salt"
EVICTION = "eviction"
LATE_EVENT = "late_event"
UNKNOWN = "unknown"
MISMATCHES = (TOKENIZER, TEMPLATE, SALT, EVICTION, LATE_EVENT, UNKNOWN)

TOLERATED_BLOCKS = 1
"""Engines always recompute the last token, and therefore one block of a fully cached prompt."""


class HitSample(msgspec.Struct, frozen=True, gc=False):
    """Believed and reported hit of one request, in prompt tokens."""

    at_s: float
    """Monotonic seconds when the engine was chosen."""
    prompt_tokens: int
    believed_tokens: int
    """Tokens that the engine holds according to the index, regardless of the index's trust."""
    reported_tokens: int
    block_tokens: int
    engine_prompt_tokens: int | None = None
    """The prompt's length as counted by the engine; None: not reported, or our own length is a guess."""
    gap: bool = False
    """Engine events were missed shortly before or during the request."""
    removed: bool = False
    """The engine reported removed blocks during the request."""
    tenant: str = ""
    """The request's tenant; empty for an operator's key, or if there is only one tenant."""
    reported: bool = False
    """The hit is known only from the tenant's report, because the gateway did not see the response."""

    @property
    def short(self) -> bool:
        """Return whether the engine had less than believed, beyond the usual difference."""
        return self.believed_tokens - self.reported_tokens > TOLERATED_BLOCKS * self.block_tokens

    @property
    def missed(self) -> bool:
        """Return whether the engine had at least one whole block more than believed."""
        return self.reported_tokens - self.believed_tokens >= self.block_tokens


def mismatch_of(sample: HitSample, pattern: str = "") -> str:
    """Return the cause of this request's difference, empty if there is none.

    `pattern` is the cause shown by all requests on the engine (gateway.pools.engines.hit_pattern). Tokenizer, template
    and salt are wrong for every request or for none, so they take precedence. A single request shows only whether
    events were missed (late event) or blocks were removed during the request (eviction).
    """
    if not sample.short and not sample.missed:
        return ""
    if pattern in (TOKENIZER, TEMPLATE, SALT):
        return pattern
    if sample.gap:
        return LATE_EVENT
    if sample.short and sample.removed:
        return EVICTION
    return pattern or UNKNOWN
