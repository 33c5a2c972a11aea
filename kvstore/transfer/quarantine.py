"""Peers that are temporarily avoided after failures."""

from __future__ import annotations

_FIRST_S, _LONGEST_S = 0.5, 30.0
_MAX_PEERS = 1024


class Quarantine:
    """Peers in quarantine. Mutable state: `_failures`, peer → (consecutive failures, time of the next try)."""

    def __init__(self) -> None:
        self._failures: dict[str, tuple[int, float]] = {}

    def failed(self, peer: str, now: float) -> None:
        """Avoid a peer, twice as long after each consecutive failure."""
        times = self._failures.get(peer, (0, 0.0))[0] + 1
        if len(self._failures) >= _MAX_PEERS:
            self._failures.pop(next(iter(self._failures)))
        # The exponent is bounded, too: a peer may fail for as long as the process lives.
        self._failures[peer] = times, now + min(_FIRST_S * 2 ** min(times - 1, 10), _LONGEST_S)

    def succeeded(self, peer: str) -> None:
        """Forget a peer's failures."""
        self._failures.pop(peer, None)

    def usable(self, peer: str, now: float) -> bool:
        """Return whether a peer can be tried."""
        return peer not in self._failures or self._failures[peer][1] <= now
