"""What a request states about the KV of its prompt (Mooncake §5.2): whether nodes keep it, which part, for how long."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from kvstore.transfer.frames import CacheHint

CONTEXT_CACHE_PIN_S = 3600.0
"""Seconds for which a context cache is pinned after each use, if the request states no other time."""
MAX_TTL_S = 86_400.0
_Tokens = Annotated[int, Meta(ge=0, le=100_000_000)]


class StatedHint(msgspec.Struct, frozen=True, gc=False, kw_only=True, forbid_unknown_fields=True):
    """A hint for the prompt's tokens from `start` to `end`."""

    hint: CacheHint = "default"
    start: _Tokens = 0
    end: Annotated[int, Meta(gt=0, le=100_000_000)] | None = None
    """None: the prompt's end."""
    ttl_s: Annotated[float, Meta(gt=0, le=MAX_TTL_S)] | None = None
    """Seconds for which a context cache is pinned after each use. None: CONTEXT_CACHE_PIN_S."""

    @property
    def pin_s(self) -> float:
        """Return the seconds for which the tokens' blocks are pinned."""
        return (self.ttl_s or CONTEXT_CACHE_PIN_S) if self.hint == "context_cache" else 0.0

    def blocks(self, block_tokens: int) -> tuple[int, int]:
        """Return the first block that holds a token of the segment and the end of these blocks; 0: the prompt's."""
        return self.start // block_tokens, 0 if self.end is None else -(-self.end // block_tokens)


NO_HINT = StatedHint()
