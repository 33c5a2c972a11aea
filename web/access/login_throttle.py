"""Slow down password guessing: each attempt is charged to three buckets before the password is checked.

In half a minute, one address gets five attempts for one name and twenty for any names (for IPv6, the address is its /64
network). In five minutes, one name gets twenty attempts from addresses at which that person has never signed in, so
that an attacker elsewhere cannot lock people out at their usual address. Codes of second factors have a bucket for each
person, and sign-ins that a provider or a passkey shall prove have one for each address. Buckets refill evenly.
"""

from __future__ import annotations

import hashlib
import math
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from django.db import IntegrityError, transaction

from controlplane.access.models.console_session import ConsoleSession
from controlplane.access.models.login_allowance import LoginAllowance
from controlplane.platform.outage.unwritable import CANNOT_WRITE, cause_of, database_writes
from kvstore.transfer.unproven import source_of

MAX_PER_NAME_AND_ADDRESS = 5
MAX_PER_ADDRESS = 20
MAX_PER_NAME = 20
WINDOW_S = 30.0
NAME_WINDOW_S = 300.0
MAX_CODES = 20
CODE_WINDOW_S = 3600.0
MAX_UNNAMED = 100
MAX_HASH_WAIT_S = 10.0
MAX_ADDRESSES_OF_PERSON = 100
MAX_FORGOTTEN = 500
MAX_COUNTED_HERE = 10_000
Bucket = tuple[str, int, float]
"""Key, attempts, and the window in seconds."""
OF_ADDRESS = 1
"""Index of the bucket that counts an address's attempts at any name."""

_hashing = threading.BoundedSemaphore(max(1, (os.cpu_count() or 1) // 2))


class LoginThrottle:
    """Limits sign-in attempts; `clock` returns Unix seconds."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock

    def attempt(self, name: str, address: str) -> int:
        """Use one attempt and return 0. If none is left, return the whole seconds until the next attempt.

        While the database is not writable, this process keeps its own counts.
        """
        return self._charge(lambda: _buckets(name, address))

    def attempt_code(self, name: str) -> int:
        """Use one attempt at a second factor's code, as `attempt` does. The password is known then."""
        return self._charge(lambda: [_code_bucket(name)])

    def attempt_without_name(self, address: str) -> int:
        """Use one attempt that names no person, as `attempt` does."""
        return self._charge(lambda: [(_key("unnamed", source_of(address) or address), MAX_UNNAMED, WINDOW_S)])

    def _charge(self, buckets: Callable[[], list[Bucket]]) -> int:
        now_s = self._clock()
        try:
            return math.ceil(_attempt(buckets(), now_s))
        except CANNOT_WRITE as error:
            if cause_of(error) is None:
                raise
            database_writes().failed(error)
            return math.ceil(_counted_here.attempt(buckets(), now_s))

    def succeeded(self, name: str, address: str) -> None:
        """Refund the attempts for this name, and this attempt for the address: a correct password is not a guess."""
        with database_writes().attempted():
            for number, (key, most, window_s) in enumerate(_buckets(name, address)):
                allowance = LoginAllowance.objects.select_for_update().filter(key=key).first()
                if allowance is None:
                    continue
                if number == OF_ADDRESS:
                    allowance.full_at_s -= window_s / most
                    allowance.save()
                else:
                    allowance.delete()
            LoginAllowance.objects.filter(key=_code_bucket(name)[0]).delete()


class CountedHere:
    """Counts attempts in memory while the database is not writable. Thread-safe. Mutable state: when each bucket is
    full again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._full_at_s: OrderedDict[str, float] = OrderedDict()

    def attempt(self, buckets: Sequence[Bucket], now_s: float) -> float:
        """Use one attempt and return 0. If none is left, return the seconds until the next attempt."""
        with self._lock:
            after = [
                (key, _after_one(self._full_at_s.get(key, now_s), most, window_s, now_s), window_s)
                for key, most, window_s in buckets
            ]
            wait_s = max(0.0, *(full_at_s - (now_s + window_s) for _, full_at_s, window_s in after))
            for key, full_at_s, _ in after if not wait_s else ():
                self._full_at_s[key] = full_at_s
                self._full_at_s.move_to_end(key)
            while len(self._full_at_s) > MAX_COUNTED_HERE:
                self._full_at_s.popitem(last=False)
        return wait_s


_counted_here = CountedHere()


def _attempt(buckets: Sequence[Bucket], now_s: float) -> float:
    with transaction.atomic():
        taken = [_take(key, most, window_s, now_s) for key, most, window_s in buckets]
        wait_s = max(0.0, *(wait_s for wait_s, _ in taken))
        if not wait_s:
            for _, allowance in taken:
                allowance.save()
    _forget_full(now_s)
    return wait_s


@contextmanager
def hashing() -> Iterator[bool]:
    """Hold one of a few slots for password hashing, which uses a full core. Yield False if none is free in time."""
    got = _hashing.acquire(timeout=MAX_HASH_WAIT_S)
    try:
        yield got
    finally:
        if got:
            _hashing.release()


def _take(key: str, most: int, window_s: float, now_s: float) -> tuple[float, LoginAllowance]:
    """Return the seconds until the bucket allows this attempt, and the bucket after the attempt. Locks the bucket's
    row.
    """
    allowance = None
    while allowance is None:
        # Another transaction may delete the conflicting row.
        with suppress(IntegrityError):
            rows = LoginAllowance.objects.select_for_update()
            allowance, _ = rows.get_or_create(key=key, defaults={"full_at_s": now_s})
    allowance.full_at_s = _after_one(allowance.full_at_s, most, window_s, now_s)
    return allowance.full_at_s - (now_s + window_s), allowance


def _after_one(full_at_s: float, most: int, window_s: float, now_s: float) -> float:
    """Return when a bucket is full again after one more attempt."""
    # A clock that was set back would otherwise lock people out for as long.
    return min(max(full_at_s, now_s), now_s + window_s) + window_s / most


def _forget_full(now_s: float) -> None:
    """Delete full buckets in a separate transaction that waits for no other row."""
    with transaction.atomic():
        full = LoginAllowance.objects.select_for_update(skip_locked=True).filter(full_at_s__lt=now_s)
        LoginAllowance.objects.filter(key__in=[item.key for item in full[:MAX_FORGOTTEN]]).delete()


def _code_bucket(name: str) -> Bucket:
    return _key("code", name.casefold()), MAX_CODES, CODE_WINDOW_S


def _buckets(name: str, address: str) -> list[Bucket]:
    """Return key, attempts, and window of each bucket. The order is fixed, because rows are locked in it."""
    typed, source = name.casefold(), source_of(address) or address
    buckets = [
        (_key("both", typed, source), MAX_PER_NAME_AND_ADDRESS, WINDOW_S),
        (_key("address", source), MAX_PER_ADDRESS, WINDOW_S),
    ]
    if not _has_been_at(name, source):
        buckets.append((_key("name", typed), MAX_PER_NAME, NAME_WINDOW_S))
    return buckets


def _has_been_at(name: str, source: str) -> bool:
    known = ConsoleSession.objects.filter(user__username=name).values_list("address", flat=True)
    return any((source_of(address) or address) == source for address in known[:MAX_ADDRESSES_OF_PERSON])


def _key(*parts: str) -> str:
    """Return a key of fixed length for any typed name."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
