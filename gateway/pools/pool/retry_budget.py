"""Limits retries, so that they do not add load to an unhealthy fleet."""

from __future__ import annotations


class RetryBudget:
    """Allows at most `share` of the active requests, and always `least`, to retry (Envoy's retry budget).

    Mutable: both limits, and the request counts `active` and `retrying`.
    """

    def __init__(self, share: float = 0.2, least: int = 3) -> None:
        self._share = share
        self._least = least
        self.active = 0
        self.retrying = 0

    def limit(self, share: float, least: int) -> None:
        """Set these limits. Running retries continue."""
        self._share = share
        self._least = least

    def enter(self) -> None:
        """Count an active request."""
        self.active += 1

    def leave(self, *, retried: bool) -> None:
        """Stop counting it. `retried` states whether it had used the budget."""
        self.active -= 1
        if retried:
            self.retrying -= 1

    def take(self) -> bool:
        """Return whether one more request can retry, and count it if so."""
        if self.retrying >= max(self._least, int(self._share * self.active)):
            return False
        self.retrying += 1
        return True
