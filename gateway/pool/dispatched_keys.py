"""Keys of running requests, for engines whose index is built from our own dispatches."""

from __future__ import annotations

from collections import OrderedDict

import msgspec


class Dispatch(msgspec.Struct, frozen=True, gc=False):
    """The engine of a request, and the blocks that its prefill leaves there."""

    engine_id: str
    incarnation: int
    keys: tuple[int, ...]
    tenant_id: str = ""
    salted: bool = False
    """Whether the engine stores these blocks under a cache salt."""
    guessed: bool = False
    """Whether the engine's events name only some of these blocks."""


class DispatchedKeys:
    """Request id → Dispatch until its first token, at most `limit`; the oldest are dropped first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._dispatches: OrderedDict[str, Dispatch] = OrderedDict()

    def __len__(self) -> int:
        return len(self._dispatches)

    def add(self, request_id: str, dispatch: Dispatch) -> None:
        """Add a dispatched request."""
        self._dispatches[request_id] = dispatch
        if len(self._dispatches) > self._limit:
            self._dispatches.popitem(last=False)

    def take(self, request_id: str) -> Dispatch | None:
        """Remove and return a request's dispatch, None if it is unknown or was removed."""
        return self._dispatches.pop(request_id, None)

    def clear(self) -> None:
        """Clear everything, for example after the meaning of a pool's keys changed."""
        self._dispatches.clear()
