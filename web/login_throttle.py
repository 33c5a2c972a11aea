"""Slows down password guessing: five failures in half a minute, then that half minute must pass."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable

from django.core.cache.backends.base import BaseCache

MAX_FAILURES = 5
WINDOW_S = 30.0


class LoginThrottle:
    """Counts failed sign-ins per name and address in a cache; `clock` gives unix seconds."""

    def __init__(self, cache: BaseCache, clock: Callable[[], float]) -> None:
        self._cache = cache
        self._clock = clock

    def wait_s(self, name: str, address: str) -> int:
        """Return the whole seconds until the next attempt is looked at; 0 when it may be made."""
        failures = self._failures(name, address)
        if len(failures) < MAX_FAILURES:
            return 0
        return max(1, math.ceil(failures[-MAX_FAILURES] + WINDOW_S - self._clock()))

    def failed(self, name: str, address: str) -> None:
        """Note a failed attempt."""
        failures = [*self._failures(name, address), self._clock()][-MAX_FAILURES:]
        self._cache.set(_key(name, address), failures, timeout=WINDOW_S)

    def succeeded(self, name: str, address: str) -> None:
        """Forget the failures: whoever knows the password is no guesser."""
        self._cache.delete(_key(name, address))

    def _failures(self, name: str, address: str) -> list[float]:
        """Return the moments of the failures that still count, oldest first."""
        earliest = self._clock() - WINDOW_S
        return [at for at in self._cache.get(_key(name, address), []) if at > earliest]


def _key(name: str, address: str) -> str:
    """Return a cache key of fixed length, whatever was typed as the name."""
    digest = hashlib.sha256(f"{name.casefold()}\0{address}".encode("utf-8", "surrogatepass")).hexdigest()
    return f"login-failures:{digest}"
