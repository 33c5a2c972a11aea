"""Limits of one API key at this gateway: requests per minute, and requests in flight.

Where several gateways serve a fleet, each has its part of the limits (gateway.owners.quota_shares).

A key without limits costs two attribute reads. All methods belong to the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from typing import Protocol

import msgspec

from gateway.contracts.snapshot import ApiKeyEntry
from gateway.http.openai_error import ApiError

RATE = "rate"
IN_FLIGHT = "in_flight"
_IN_FLIGHT_RETRY_S = 1.0
# Many small refills add up to a little less than one large one.
_ROUNDING = 1e-9


class KeyPart(msgspec.Struct, frozen=True, array_like=True):
    """One gateway's part of one key's limits."""

    rate: float
    """Share of the requests per minute, 0..1."""
    slots: int
    """Part of the requests under way; 0 also where the key has no such limit."""

    @classmethod
    def even(cls, key: ApiKeyEntry, index: int, count: int) -> KeyPart:
        """Return the part of the gateway at `index` of `count`, where all get the same."""
        limit = key.max_in_flight or 0
        return cls(1.0 / count, limit // count + (index < limit % count))

    def scaled(self, share: float) -> KeyPart:
        """Return this share of the part."""
        return KeyPart(self.rate * share, int(self.slots * share))


class LimitCounter(Protocol):
    """Counts rejections by reason; a CounterFamily is one."""

    def inc(self, *values: str, amount: float = 1.0) -> None:
        """Add to the counter of this reason."""
        ...


class _Use:
    """What one key has used. Mutable: `tokens` as of `at_s`, and the end of each slot that is taken."""

    __slots__ = ("asked", "at_s", "earliest_end_s", "no_slot", "slots", "tokens")

    def __init__(self, tokens: float, now_s: float) -> None:
        self.tokens = tokens
        self.at_s = now_s
        self.asked = 0
        """Requests since the last reading; `no_slot` counts those of them that got no slot."""
        self.no_slot = 0
        self.slots: dict[str, float] = {}
        """Request id → monotonic second at which the slot is free at the latest."""
        self.earliest_end_s = inf
        """No slot ends before this; spares a scan of all of them."""

    def refill(self, rate: float, now_s: float) -> None:
        # A part of a small limit grows to one request at least.
        self.tokens = min(max(rate, 1.0) if rate else 0.0, self.tokens + max(0.0, now_s - self.at_s) * rate / 60.0)
        # A batch spends as of its arrival; other calls may have refilled later than that.
        self.at_s = max(self.at_s, now_s)

    def drop_ended(self, now_s: float) -> list[str]:
        if now_s < self.earliest_end_s:
            return []
        ended = [request_id for request_id, end_s in self.slots.items() if end_s <= now_s]
        for request_id in ended:
            del self.slots[request_id]
        self.earliest_end_s = min(self.slots.values(), default=inf)
        return ended


class KeyQuotas:
    """Keeps every key within `rate_per_min` and `max_in_flight` of its entry.

    The rate is a token bucket that holds one minute's requests and fills evenly. A key that rested may send a minute's
    worth at once; in T seconds it never gets more than rate × (1 + T/60). `per_request` calls of a kind of their own
    (`calls`) may come for each request, from a separate bucket. A slot is taken under the request's id and freed once:
    by `release`, or at the end that `end_by` set, so that a caller who never reports loses its slot with its
    reservation.
    """

    def __init__(self, limited: LimitCounter, *, calls: str = "requests", per_request: int = 1) -> None:
        self._limited = limited
        self._calls = calls
        self._per_request = per_request
        self._uses: dict[str, _Use] = {}
        self._holders: dict[str, _Use] = {}
        """Request id → the use that holds its slot."""
        self.limited: dict[str, ApiKeyEntry] = {}
        """All keys with limits, by id."""
        self.position = (0, 1)
        """This gateway's index among the gateways, and their number. Limits without assigned parts are divided evenly.
        """
        self._joined_s: float | None = None
        """When we joined gateways that served already."""
        self.parts: dict[str, KeyPart] = {}
        """Our parts of keys' limits as they were given out."""

    def spend(self, key: ApiKeyEntry, now_s: float, requests: int = 1) -> None:
        """Take `requests` from the key's minute; raises ApiError 429, having taken nothing, where they are not left."""
        if key.rate_per_min is None:
            return
        rate, here = key.rate_per_min * self._per_request, self._rate_here(key)
        use = self._use(key, now_s)
        # Rejected calls count as well: gateways divide a limit by what is asked of them.
        use.asked += requests
        use.refill(here, now_s)
        if use.tokens >= requests - _ROUNDING:
            use.tokens = max(0.0, use.tokens - requests)
            return
        self._limited.inc(RATE)
        if requests > rate:
            message = f"This API key may send {rate} {self._calls} per minute; send at most that many per batch."
            raise ApiError(429, message, "key_rate_limit", retry_after_s=60.0)
        raise ApiError(
            429,
            f"This API key may send {rate} {self._calls} per minute; wait for Retry-After, or ask for a higher limit.",
            "key_rate_limit",
            retry_after_s=min(60.0, (requests - use.tokens) * 60.0 / here) if here > 0 else 60.0,
        )

    def enter(self, key: ApiKeyEntry, request_id: str, now_s: float) -> None:
        """Take a slot for a request; raises ApiError 429 where all are taken. Without a limit no slot is needed."""
        limit = key.max_in_flight
        if limit is None:
            return
        use = self._use(key, now_s)
        here = limit if self.position[1] == 1 else self.part_of(key).slots
        if len(use.slots) >= here:
            for ended in use.drop_ended(now_s):
                self._holders.pop(ended, None)
        if len(use.slots) >= here:
            use.no_slot += 1
            self._limited.inc(IN_FLIGHT)
            raise ApiError(
                429,
                f"This API key may have {limit} requests in flight; wait until one ends.",
                "key_in_flight_limit",
                retry_after_s=_IN_FLIGHT_RETRY_S,
            )
        use.slots[request_id] = inf
        self._holders[request_id] = use

    def end_by(self, request_id: str, end_s: float) -> None:
        """Free the request's slot at `end_s` (monotonic) if nothing frees it before; ids without a slot are ignored."""
        use = self._holders.get(request_id)
        if use is not None:
            use.slots[request_id] = end_s
            use.earliest_end_s = min(use.earliest_end_s, end_s)

    def release(self, request_id: str) -> None:
        """Free the request's slot; a second call, or an id without one, changes nothing."""
        use = self._holders.pop(request_id, None)
        if use is not None:
            use.slots.pop(request_id, None)

    def keep_only(self, keys: Iterable[ApiKeyEntry]) -> None:
        """Forget what keys have used that are gone or have no limit any more."""
        kept = self.limited = {
            key.key_id: key for key in keys if key.rate_per_min is not None or key.max_in_flight is not None
        }
        self.parts = {key_id: part for key_id, part in self.parts.items() if key_id in kept}
        for key_id in [known for known in self._uses if known not in kept]:
            for request_id in self._uses.pop(key_id).slots:
                self._holders.pop(request_id, None)

    def in_flight(self, key_id: str, now_s: float) -> int:
        """Return how many slots the key holds now."""
        use = self._uses.get(key_id)
        return 0 if use is None else sum(1 for end_s in use.slots.values() if end_s > now_s)

    def share_with(self, position: tuple[int, int], now_s: float, *, empty: bool) -> None:
        """Take this index and number of gateways; `empty`: what the others have given out is not ours to spend."""
        if position == self.position:
            return
        self._settle(self._uses, now_s)
        self.position = position
        if position[1] == 1:
            self.parts = {}
        if empty:
            self._joined_s = now_s
            for use in self._uses.values():
                use.tokens = 0.0

    def take_parts(self, parts: Mapping[str, KeyPart], now_s: float) -> None:
        """Replace our parts by these."""
        self._settle(parts, now_s)
        self.parts.update({key_id: part for key_id, part in parts.items() if key_id in self.limited})

    def _settle(self, key_ids: Iterable[str], now_s: float) -> None:
        """Refill buckets at the rate of the previous parts."""
        for key_id in key_ids:
            key, use = self.limited.get(key_id), self._uses.get(key_id)
            if key is not None and use is not None and key.rate_per_min is not None:
                use.refill(self._rate_here(key), now_s)

    def part_of(self, key: ApiKeyEntry) -> KeyPart:
        """Return our part of the key's limits."""
        return self.parts.get(key.key_id) or KeyPart.even(key, *self.position)

    def held(self, key: ApiKeyEntry) -> KeyPart:
        """Return our part, with the taken slots beyond it."""
        part, use = self.part_of(key), self._uses.get(key.key_id)
        return part if use is None or len(use.slots) <= part.slots else KeyPart(part.rate, len(use.slots))

    def asked_since(self) -> dict[str, tuple[int, int]]:
        """Return for each key its requests since the last call, and its slots in use plus those unavailable."""
        asked = {}
        for key_id, use in self._uses.items():
            asked[key_id] = (use.asked, len(use.slots) + use.no_slot)
            use.asked = use.no_slot = 0
        return asked

    def check(self) -> None:
        """Raise AssertionError where the tables disagree."""
        held = {request_id: use for use in self._uses.values() for request_id in use.slots}
        if held != self._holders:
            raise AssertionError(f"{len(held)} slots are taken, {len(self._holders)} are known by id")
        for key_id, use in self._uses.items():
            if use.tokens < 0:
                raise AssertionError(f"{key_id} has {use.tokens} requests left")
            if use.earliest_end_s > min(use.slots.values(), default=inf):
                raise AssertionError(f"a slot of {key_id} ends before {use.earliest_end_s}")

    def _rate_here(self, key: ApiKeyEntry) -> float:
        """Return our part of the key's rate, in tokens of the bucket per minute."""
        rate = (key.rate_per_min or 0) * self._per_request
        return rate if self.position[1] == 1 else rate * self.part_of(key).rate

    def _use(self, key: ApiKeyEntry, now_s: float) -> _Use:
        use = self._uses.get(key.key_id)
        if use is None:
            joined_s = self._joined_s
            # The others gave out the full bucket before we joined; ours has what has grown since.
            use = _Use(self._rate_here(key), now_s) if joined_s is None else _Use(0.0, min(joined_s, now_s))
            self._uses[key.key_id] = use
        return use
