"""Keys of running requests, for engines whose index is built from our own dispatches."""

from __future__ import annotations

from collections import OrderedDict

import msgspec


class Dispatch(msgspec.Struct, frozen=True, gc=False):
    """The engine of one request, and the blocks that its prefill leaves there."""

    engine_id: str
    incarnation: int
    keys: tuple[int, ...]
    tenant_id: str = ""
    salted: bool = False
    """Whether the engine keeps these blocks under a cache salt."""
    guessed: bool = False
    """Whether the engine's events name them in part only."""


class DispatchedKeys:
    """Request id → Dispatch until its first token, at most `limit`; the oldest leave first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._dispatches: OrderedDict[str, Dispatch] = OrderedDict()

    def __len__(self) -> int:
        return len(self._dispatches)

    def add(self, request_id: str, dispatch: Dispatch) -> None:
        """Remember a dispatched request."""
        self._dispatches[request_id] = dispatch
        if len(self._dispatches) > self._limit:
            self._dispatches.popitem(last=False)

    def take(self, request_id: str) -> Dispatch | None:
        """Return and forget a request's dispatch; None where it is unknown or was taken."""
        return self._dispatches.pop(request_id, None)

    def clear(self) -> None:
        """Forget all, as when the keys of a pool change their meaning."""
        self._dispatches.clear()
