"""Estimate whether loading blocks is faster than computing them, from the engine's own steps and loads."""

from __future__ import annotations

_SHARE = 0.2
"""Weight of the latest observation."""
_SMALL_BYTES = 16 << 10
_MIN_PATIENCE_S = 0.1
_FADING = 0.95


class LoadEstimate:
    """Loading and computing rates of one engine.

    Mutable state: the learned rates, and `_under_way`, request → bytes that it is loading.
    """

    def __init__(self) -> None:
        self.token_s = 0.0
        """Seconds of prefill per token, 0 if unknown."""
        self.byte_s = 0.0
        """Seconds per loaded byte, 0 if unknown."""
        self._under_way: dict[str, int] = {}

    def computed(self, token_s: float) -> None:
        """Learn from one step's prefill."""
        if token_s > 0:
            self.token_s = self.token_s + _SHARE * (token_s - self.token_s) if self.token_s else token_s

    def begin(self, request_id: str, size: int) -> None:
        """Record a started load."""
        self._under_way[request_id] = size

    def end(self, request_id: str, loaded_bytes: int, seconds: float) -> None:
        """Learn from an ended load. A load without bytes does not change the rate."""
        self._under_way.pop(request_id, None)
        # The time of a small load is mostly latency.
        if loaded_bytes >= _SMALL_BYTES and seconds > 0:
            byte_s = seconds / loaded_bytes
            self.byte_s = self.byte_s + _SHARE * (byte_s - self.byte_s) if self.byte_s else byte_s

    def pays(self, tokens: int, size: int) -> bool:
        """Return whether a load of `size` bytes, after those in progress, is faster than computing these tokens.

        True while either rate is unknown: the gateway that ordered the load then has better information.
        """
        if not self.token_s or not self.byte_s:
            return True
        return (sum(self._under_way.values()) + size) * self.byte_s <= tokens * self.token_s

    def hides(self, size: int, tokens: int) -> bool:
        """Return whether computing these tokens takes at least as long as a load of `size` bytes beside it."""
        known = self.token_s and self.byte_s
        return bool(known) and (sum(self._under_way.values()) + size) * self.byte_s <= tokens * self.token_s

    def rejected(self) -> None:
        """Lower the assumed time per byte, because rejected loads cannot correct it."""
        self.byte_s *= _FADING

    def patience_s(self, tokens: int, timeout_s: float, max_ratio: float) -> float:
        """Return how long to wait for blocks: at most `timeout_s` and `max_ratio` times their computing time."""
        if not max_ratio or not self.token_s:
            return timeout_s
        return min(timeout_s, max(_MIN_PATIENCE_S, max_ratio * tokens * self.token_s))
