"""Slows down password guessing: five failures of one name, or twenty of one address, in half a minute.

Then that half minute must pass. The limit per address holds against whoever tries one password on many names.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable

from django.core.cache.backends.base import BaseCache

MAX_FAILURES = 5
MAX_FAILURES_PER_ADDRESS = 20
WINDOW_S = 30.0


class LoginThrottle:
    """Counts failed sign-ins in a cache, per name and address and per address; `clock` gives unix seconds."""

    def __init__(self, cache: BaseCache, clock: Callable[[], float]) -> None:
        self._cache = cache
        self._clock = clock

    def wait_s(self, name: str, address: str) -> int:
        """Return the whole seconds until the next attempt is looked at; 0 when it may be made."""
        return max(self._wait_s(key, limit) for key, limit in _limits(name, address))

    def failed(self, name: str, address: str) -> None:
        """Note a failed attempt."""
        for key, limit in _limits(name, address):
            failures = [*self._failures(key), self._clock()][-limit:]
            self._cache.set(key, failures, timeout=WINDOW_S)

    def succeeded(self, name: str, address: str) -> None:
        """Forget the name's failures: whoever knows the password is no guesser. Those of the address stay."""
        self._cache.delete(_key(name, address))

    def _wait_s(self, key: str, limit: int) -> int:
        failures = self._failures(key)
        if len(failures) < limit:
            return 0
        return max(1, math.ceil(failures[-limit] + WINDOW_S - self._clock()))

    def _failures(self, key: str) -> list[float]:
        """Return the moments of the failures that still count, oldest first."""
        earliest = self._clock() - WINDOW_S
        return [at for at in self._cache.get(key, []) if at > earliest]


def _limits(name: str, address: str) -> tuple[tuple[str, int], tuple[str, int]]:
    return (_key(name, address), MAX_FAILURES), (_key(None, address), MAX_FAILURES_PER_ADDRESS)


def _key(name: str | None, address: str) -> str:
    """Return a cache key of fixed length, whatever was typed as the name; for None the address's own."""
    typed = "\0" if name is None else name.casefold()
    digest = hashlib.sha256(f"{typed}\0{address}".encode("utf-8", "surrogatepass")).hexdigest()
    return f"login-failures:{digest}"
