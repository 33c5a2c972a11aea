"""Limits the requests on another attempt, so that an ailing fleet is not hit harder by retries."""

from __future__ import annotations


class RetryBudget:
    """At most `share` of the active requests, and always `least`, may be retrying (Envoy's retry budget).

    Mutable state: both limits, and `active` and `retrying`, counts of requests.
    """

    def __init__(self, share: float = 0.2, least: int = 3) -> None:
        self._share = share
        self._least = least
        self.active = 0
        self.retrying = 0

    def limit(self, share: float, least: int) -> None:
        """Set these limits; retries under way go on."""
        self._share = share
        self._least = least

    def enter(self) -> None:
        """Count an active request."""
        self.active += 1

    def leave(self, *, retried: bool) -> None:
        """Stop counting it; `retried` states whether it had taken from the budget."""
        self.active -= 1
        if retried:
            self.retrying -= 1

    def take(self) -> bool:
        """Return whether one more request may retry, and count it if so."""
        if self.retrying >= max(self._least, int(self._share * self.active)):
            return False
        self.retrying += 1
        return True
