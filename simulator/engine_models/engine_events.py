"""Events inside a simulated engine, as values; `at_s` is the model's clock in seconds."""

from __future__ import annotations

import msgspec


class PrefillStarted(msgspec.Struct, frozen=True, gc=False):
    """The prompt left the queue; `cached_tokens` of it were in the cache at this moment."""

    request_id: str
    at_s: float
    cached_tokens: int


class FirstTokenEvent(msgspec.Struct, frozen=True, gc=False):
    """Prefill is over and the first output token exists."""

    request_id: str
    at_s: float
    cached_tokens: int


class Token(msgspec.Struct, frozen=True, gc=False):
    """Output token number `index` (the first one, 0, is FirstTokenEvent)."""

    request_id: str
    at_s: float
    index: int


class Finished(msgspec.Struct, frozen=True, gc=False):
    """The last output token exists and the sequence left the engine."""

    request_id: str
    at_s: float
    output_tokens: int


class BlocksStored(msgspec.Struct, frozen=True, gc=False):
    """Blocks `first_block` … of this prompt are new in the cache, chained after `parent` (None: the prompt's start)."""

    request_id: str
    at_s: float
    first_block: int
    keys: tuple[int, ...]
    parent: int | None
    loaded: bool = False
    """Whether they were loaded from elsewhere instead of computed."""


class BlocksRemoved(msgspec.Struct, frozen=True, gc=False):
    """These blocks were evicted, in this order."""

    at_s: float
    keys: tuple[int, ...]


class TierChanged(msgspec.Struct, frozen=True, gc=False):
    """Copies of blocks were added to CPU memory, and others were evicted for them."""

    at_s: float
    stored: tuple[int, ...]
    removed: tuple[int, ...]


class WindowChanged(msgspec.Struct, frozen=True, gc=False):
    """The window keeps new blocks of this prompt, computed from `first_block` on, and evicted others for them."""

    request_id: str
    at_s: float
    first_block: int
    positions: tuple[int, ...]
    """Positions of these blocks in the prompt."""
    removed: tuple[int, ...]


EngineEvent = (
    PrefillStarted | FirstTokenEvent | Token | Finished | BlocksStored | BlocksRemoved | TierChanged | WindowChanged
)
