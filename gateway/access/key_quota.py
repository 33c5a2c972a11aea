"""Limits of each API key at this gateway: requests per minute and requests in flight.

If several gateways serve a fleet, each gets a part of the limits (gateway.peers.owners.quota_shares).

A key without limits costs two attribute reads. Call all methods on the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from typing import Protocol

import msgspec

from gateway.contracts.snapshot import ApiKeyEntry
from gateway.server.http.openai_error import ApiError

RATE = "rate"
IN_FLIGHT = "in_flight"
_IN_FLIGHT_RETRY_S = 1.0
# Many small refills add up to a little less than one large one.
_ROUNDING = 1e-9


class KeyPart(msgspec.Struct, frozen=True, array_like=True):
    """One gateway's part of the limits of one key."""

    rate: float
    """Share of the requests per minute, 0..1."""
    slots: int
    """Part of the requests in flight; 0 also if the key has no such limit."""

    @classmethod
    def even(cls, key: ApiKeyEntry, index: int, count: int) -> KeyPart:
        """Return an equal part for the gateway at `index` of `count`."""
        limit = key.max_in_flight or 0
        return cls(1.0 / count, limit // count + (index < limit % count))

    def scaled(self, share: float) -> KeyPart:
        """Return the part scaled by `share`."""
        return KeyPart(self.rate * share, int(self.slots * share))


class LimitCounter(Protocol):
    """Counts rejections by reason; CounterFamily implements it."""

    def inc(self, *values: str, amount: float = 1.0) -> None:
        """Add to the counter of this reason."""
        ...


class _Use:
    """The usage of one key. Mutable: `tokens` as of `at_s`, and the end of each occupied slot."""

    __slots__ = ("asked", "at_s", "earliest_end_s", "no_slot", "slots", "tokens")

    def __init__(self, tokens: float, now_s: float) -> None:
        self.tokens = tokens
        self.at_s = now_s
        self.asked = 0
        """Requests since the last call of `asked_since`; `no_slot` counts those that got no slot."""
        self.no_slot = 0
        self.slots: dict[str, float] = {}
        """Request id → monotonic second at which the slot is free at the latest."""
        self.earliest_end_s = inf
        """Lower bound of all slot ends, which avoids a scan of the slots."""

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
    """Enforces `rate_per_min` and `max_in_flight` of every key.

    The rate limit is a token bucket that holds one minute's requests and fills evenly. An idle key can send a minute's
    requests at once; in T seconds it never gets more than rate × (1 + T/60). Calls of another kind (`calls`) have a
    separate bucket that allows `per_request` calls for each request. A slot belongs to a request id and is freed once:
    by `release`, or at the time set by `end_by`, so that a caller who never reports loses its slot with its
    reservation.
    """

    def __init__(self, limited: LimitCounter, *, calls: str = "requests", per_request: int = 1) -> None:
        self._limited = limited
        self._calls = calls
        self._per_request = per_request
        self._uses: dict[str, _Use] = {}
        self._holders: dict[str, _Use] = {}
        """Request id → the usage record that holds its slot."""
        self.limited: dict[str, ApiKeyEntry] = {}
        """All keys with limits, by id."""
        self.position = (0, 1)
        """This gateway's (index, number of gateways). Limits without assigned parts are divided evenly."""
        self._joined_s: float | None = None
        """When this gateway joined gateways that were already serving; None otherwise."""
        self.parts: dict[str, KeyPart] = {}
        """The parts of keys' limits that were assigned to this gateway."""

    def spend(self, key: ApiKeyEntry, now_s: float, requests: int = 1) -> None:
        """Spend `requests` of the key's minute. If too few remain, spend nothing and raise ApiError 429."""
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
            message = f"This API key can send {rate} {self._calls} per minute; send at most that many per batch."
            raise ApiError(429, message, "key_rate_limit", retry_after_s=60.0)
        raise ApiError(
            429,
            f"This API key can send {rate} {self._calls} per minute; wait for Retry-After, or ask for a higher limit.",
            "key_rate_limit",
            retry_after_s=min(60.0, (requests - use.tokens) * 60.0 / here) if here > 0 else 60.0,
        )

    def enter(self, key: ApiKeyEntry, request_id: str, now_s: float) -> None:
        """Occupy a slot for a request; raise ApiError 429 if none is free. A key without a limit needs no slot."""
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
                f"This API key is limited to {limit} requests in flight; wait until one ends.",
                "key_in_flight_limit",
                retry_after_s=_IN_FLIGHT_RETRY_S,
            )
        use.slots[request_id] = inf
        self._holders[request_id] = use

    def end_by(self, request_id: str, end_s: float) -> None:
        """Free the request's slot at `end_s` (monotonic) at the latest. Ids without a slot are ignored."""
        use = self._holders.get(request_id)
        if use is not None:
            use.slots[request_id] = end_s
            use.earliest_end_s = min(use.earliest_end_s, end_s)

    def release(self, request_id: str) -> None:
        """Free the request's slot. A second call, or an id without a slot, changes nothing."""
        use = self._holders.pop(request_id, None)
        if use is not None:
            use.slots.pop(request_id, None)

    def keep_only(self, keys: Iterable[ApiKeyEntry]) -> None:
        """Delete the usage of keys that were removed or no longer have a limit."""
        kept = self.limited = {
            key.key_id: key for key in keys if key.rate_per_min is not None or key.max_in_flight is not None
        }
        self.parts = {key_id: part for key_id, part in self.parts.items() if key_id in kept}
        for key_id in [known for known in self._uses if known not in kept]:
            for request_id in self._uses.pop(key_id).slots:
                self._holders.pop(request_id, None)

    def in_flight(self, key_id: str, now_s: float) -> int:
        """Return the number of slots that the key holds now."""
        use = self._uses.get(key_id)
        return 0 if use is None else sum(1 for end_s in use.slots.values() if end_s > now_s)

    def share_with(self, position: tuple[int, int], now_s: float, *, empty: bool) -> None:
        """Set this gateway's (index, number of gateways). `empty`: start with empty buckets, as others spent the
        tokens.
        """
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
        """Set the parts that were assigned to this gateway."""
        self._settle(parts, now_s)
        self.parts.update({key_id: part for key_id, part in parts.items() if key_id in self.limited})

    def _settle(self, key_ids: Iterable[str], now_s: float) -> None:
        """Refill the keys' buckets at their current rates, before the parts change."""
        for key_id in key_ids:
            key, use = self.limited.get(key_id), self._uses.get(key_id)
            if key is not None and use is not None and key.rate_per_min is not None:
                use.refill(self._rate_here(key), now_s)

    def part_of(self, key: ApiKeyEntry) -> KeyPart:
        """Return this gateway's part of the key's limits."""
        return self.parts.get(key.key_id) or KeyPart.even(key, *self.position)

    def held(self, key: ApiKeyEntry) -> KeyPart:
        """Return this gateway's part, raised to the slots in use if these exceed it."""
        part, use = self.part_of(key), self._uses.get(key.key_id)
        return part if use is None or len(use.slots) <= part.slots else KeyPart(part.rate, len(use.slots))

    def asked_since(self) -> dict[str, tuple[int, int]]:
        """Return by key id its (requests since the last call, slots in use plus requests without a slot)."""
        asked = {}
        for key_id, use in self._uses.items():
            asked[key_id] = (use.asked, len(use.slots) + use.no_slot)
            use.asked = use.no_slot = 0
        return asked

    def check(self) -> None:
        """Raise AssertionError if the tables disagree."""
        held = {request_id: use for use in self._uses.values() for request_id in use.slots}
        if held != self._holders:
            raise AssertionError(f"{len(held)} slots are taken, {len(self._holders)} are known by id")
        for key_id, use in self._uses.items():
            if use.tokens < 0:
                raise AssertionError(f"{key_id} has {use.tokens} requests left")
            if use.earliest_end_s > min(use.slots.values(), default=inf):
                raise AssertionError(f"a slot of {key_id} ends before {use.earliest_end_s}")

    def _rate_here(self, key: ApiKeyEntry) -> float:
        """Return this gateway's part of the key's rate, in bucket tokens per minute."""
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
