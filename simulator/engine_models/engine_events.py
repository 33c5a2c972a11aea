"""Events of a simulated engine as values; `at_s` is the model's clock in seconds."""

from __future__ import annotations

import msgspec


class PrefillStarted(msgspec.Struct, frozen=True, gc=False):
    """The prompt left the queue; at this time, `cached_tokens` of it were in the cache."""

    request_id: str
    at_s: float
    cached_tokens: int


class FirstTokenEvent(msgspec.Struct, frozen=True, gc=False):
    """Prefill has ended and the first output token exists."""

    request_id: str
    at_s: float
    cached_tokens: int


class Token(msgspec.Struct, frozen=True, gc=False):
    """Output token number `index` exists. The first one, 0, is reported by FirstTokenEvent."""

    request_id: str
    at_s: float
    index: int


class Finished(msgspec.Struct, frozen=True, gc=False):
    """The last output token exists, and the sequence has left the engine."""

    request_id: str
    at_s: float
    output_tokens: int


class BlocksStored(msgspec.Struct, frozen=True, gc=False):
    """Blocks of this prompt from `first_block` on are new in the cache, chained after `parent` (None: the prompt's
    start).
    """

    request_id: str
    at_s: float
    first_block: int
    keys: tuple[int, ...]
    parent: int | None
    loaded: bool = False
    """Whether the blocks were loaded rather than computed."""


class BlocksRemoved(msgspec.Struct, frozen=True, gc=False):
    """These blocks were evicted, in this order."""

    at_s: float
    keys: tuple[int, ...]


class TierChanged(msgspec.Struct, frozen=True, gc=False):
    """Copies of blocks were added to CPU memory; other copies were evicted for them."""

    at_s: float
    stored: tuple[int, ...]
    removed: tuple[int, ...]


class WindowChanged(msgspec.Struct, frozen=True, gc=False):
    """The window stored blocks of this prompt from `first_block` on; other blocks were evicted for them."""

    request_id: str
    at_s: float
    first_block: int
    positions: tuple[int, ...]
    """Positions of the new blocks in the prompt."""
    removed: tuple[int, ...]


EngineEvent = (
    PrefillStarted | FirstTokenEvent | Token | Finished | BlocksStored | BlocksRemoved | TierChanged | WindowChanged
)
