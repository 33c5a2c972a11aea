"""Observations of dispatched requests that the gateway reports to the router."""

from __future__ import annotations

import msgspec

WHOLE, PARTIAL, UNNEEDED = "whole", "partial", "unneeded"
MISSING, LATE, FAILED, UNTOLD = "missing", "late", "failed", "untold"
"""Results of a load. unneeded: the engine already held the blocks. untold: the engine reported nothing, and nothing can
be inferred from its answer.
"""


class LoadResult(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Blocks that an engine loaded from a node manager before its prefill."""

    node: str
    """Name of the node that sent the blocks, or was to send them."""
    result: str
    ordered: int
    """Leading blocks of the prompt that the node held."""
    held: int = 0
    """Leading blocks that the engine held, according to the placement."""
    blocks: int = 0
    size: int = 0
    """Bytes; 0: unknown."""
    seconds: float = 0.0
    """0: unknown."""
    ssd_blocks: int = 0
    """Blocks that the node had only on its SSD, according to the placement."""

    @property
    def span(self) -> tuple[int, int]:
        """Return the first loaded block's position in the prompt, and the position after the last one."""
        if self.result == WHOLE:
            return max(0, self.ordered - self.blocks), self.ordered
        return self.held, self.held + self.blocks


class FirstToken(msgspec.Struct, frozen=True, gc=False):
    """The engine sent the first token: the request's prefill is complete."""

    request_id: str


class HandedOver(msgspec.Struct, frozen=True, gc=False):
    """The prefill engine is done. The request's first token will come from its decode engine."""

    request_id: str
    load: LoadResult | None = None


class Completed(msgspec.Struct, frozen=True, gc=False):
    """The answer is complete. `cached_tokens` is the engine's figure (None if it reports none)."""

    request_id: str
    cached_tokens: int | None = None
    load: LoadResult | None = None


class Failed(msgspec.Struct, frozen=True, gc=False):
    """The request ended without an answer, was cancelled by its client, or never reached the engine."""

    request_id: str


class ForwardFailed(msgspec.Struct, frozen=True, gc=False):
    """The region that got the request did not serve it, and the client has received nothing."""

    request_id: str


Observation = FirstToken | HandedOver | Completed | Failed | ForwardFailed
