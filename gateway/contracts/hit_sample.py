"""One request's predicted and reported hit, and the causes of a difference within the request."""

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
"""Engines always recompute the last token, and with it one block of a prompt that they hold entirely."""


class HitSample(msgspec.Struct, frozen=True, gc=False):
    """Believed and reported hit of one request. Tokens of the prompt."""

    at_s: float
    """When its engine was chosen, monotonic seconds."""
    prompt_tokens: int
    believed_tokens: int
    """Held by the engine according to the index, whatever the trust in it."""
    reported_tokens: int
    block_tokens: int
    engine_prompt_tokens: int | None = None
    """The prompt's length as the engine counted it; None: not reported, or our own length is a guess."""
    gap: bool = False
    """Events of the engine were missed shortly before, or while the request was under way."""
    removed: bool = False
    """The engine reported removed blocks while the request was under way."""
    tenant: str = ""
    """The tenant whose request it was; empty: it came with an operator's key, or from the only tenant."""
    reported: bool = False
    """It is known from that tenant's report alone: the gateway did not see the answer."""

    @property
    def short(self) -> bool:
        """Whether the engine had less than was believed, by more than engines do anyway."""
        return self.believed_tokens - self.reported_tokens > TOLERATED_BLOCKS * self.block_tokens

    @property
    def missed(self) -> bool:
        """Whether the engine had more than was believed, by a whole block at least."""
        return self.reported_tokens - self.believed_tokens >= self.block_tokens


def mismatch_of(sample: HitSample, pattern: str = "") -> str:
    """Return the cause of this request's difference; empty where there is none.

    `pattern` is the cause that all requests on its engine together show (gateway.engines.hit_pattern): tokenizer,
    template and salt are wrong for every request or for none, so they go first. A single request shows only whether
    events were missed (late event) or blocks were removed while it was under way (eviction).
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
