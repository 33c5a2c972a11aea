"""What the detection of incidents knows of the fleet: one reading at a time, and the readings of the last minutes.

Times are Unix seconds. Counters are cumulative and outlive a gateway's restart; a lower one comes from another count,
which shows nothing about the time between.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

ON_TIME_TARGET = 0.90
"""Share of requests that should be on time, for pools without an objective of their own."""
ON_TIME, LATE, FAILED, REJECTED = range(4)
Outcomes: TypeAlias = tuple[int, int, int, int]
"""Ended requests: on time, late, failed, rejected. Each request is in one of them."""
NONE: Outcomes = (0, 0, 0, 0)
Table: TypeAlias = dict[str, Outcomes]
Tables: TypeAlias = dict[str, Table]
"""Dimension (tenants, keys, lengths) → row → outcomes. The row "" has the requests of no named row."""
ALL = "all"
"""Dimension with one row, "": all requests of the pool."""


def requests(outcomes: Outcomes) -> int:
    """Return the number of ended requests."""
    return sum(outcomes)


def missed(outcomes: Outcomes) -> int:
    """Return the number of requests that were late, failed, or rejected."""
    return outcomes[LATE] + outcomes[FAILED] + outcomes[REJECTED]


def on_time_share(outcomes: Outcomes) -> float | None:
    """Return the share of requests on time, 0..1; None without requests."""
    ended = requests(outcomes)
    return outcomes[ON_TIME] / ended if ended else None


def plus(one: Outcomes, other: Outcomes) -> Outcomes:
    """Return the sum."""
    return one[0] + other[0], one[1] + other[1], one[2] + other[2], one[3] + other[3]


def grown(now: Outcomes, before: Outcomes) -> Outcomes:
    """Return the requests that ended after `before`; none if it is from another count."""
    more = now[0] - before[0], now[1] - before[1], now[2] - before[2], now[3] - before[3]
    return NONE if min(more) < 0 else more


def tables_since(now: Tables, before: Tables) -> Tables:
    """Return the requests of each row that ended after `before`. A row that left meanwhile is in the row ""."""
    total = grown(now[ALL][""], before.get(ALL, {}).get("", NONE))
    since: Tables = {ALL: {"": total}}
    for dimension, table in now.items():
        if dimension == ALL:
            continue
        old = before.get(dimension, {})
        rows = {row: grown(counts, old.get(row, NONE)) for row, counts in table.items() if row}
        known = NONE
        for counts in rows.values():
            known = plus(known, counts)
        rows[""] = (
            max(0, total[0] - known[0]),
            max(0, total[1] - known[1]),
            max(0, total[2] - known[2]),
            max(0, total[3] - known[3]),
        )
        since[dimension] = {row: counts for row, counts in rows.items() if requests(counts)}
    return since


def sum_tables(tables: Iterable[Tables]) -> Tables:
    """Return the sum, row by row."""
    together: Tables = {}
    for one in tables:
        for dimension, table in one.items():
            rows = together.setdefault(dimension, {})
            for row, counts in table.items():
                rows[row] = plus(rows.get(row, NONE), counts)
    return together


class EngineSigns(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One engine."""

    engine_id: str
    name: str
    pool_id: str
    incarnation: int = 1
    state: str = "serving"
    reason: str = ""
    since: float = 0.0
    """When it entered its state."""
    running: int = 0
    in_flight_s: float = 0.0
    restarts: int = 0
    """New processes of the engine."""
    progress: int = 0
    """First tokens and later pieces that the gateway received from this incarnation."""
    slowness: float | None = None
    """Actual over estimated seconds to the first token, median over the last minute."""
    slowness_samples: int = 0
    failures_in_row: int = 0
    trust: str = "exact"
    prompt_tokens: int = 0
    cached_tokens: int = 0
    """Of completed requests, as the engine reports them."""
    dispatched_tokens: int = 0
    dispatched_hits: int = 0
    """Prompt tokens of dispatched requests, and those of them that it was believed to hold."""
    tokenizer_late: int = 0
    """Requests whose tokens this engine returned late."""
    removed_blocks: int | None = None
    """Blocks that the engine evicted; None: not reported."""
    block_tokens: int = 0
    """Tokens of one of them; 0: unknown."""


class PoolSigns(msgspec.Struct, frozen=True, kw_only=True):
    """One pool."""

    pool_id: str
    name: str
    target: float = ON_TIME_TARGET
    """Share of requests that should be on time."""
    tables: Tables
    waiting: int = 0
    """Requests that are queued or running."""
    prefixes: Mapping[str, float] = {}
    """Prefix key → share of the work of the pool's busiest prefixes, 0..1."""


class Outage(msgspec.Struct, frozen=True, gc=False):
    """Something outside the engines that is cut off: `kind` is node, link, region, or job."""

    kind: str
    name: str
    since: float


class FleetSigns(msgspec.Struct, frozen=True, kw_only=True):
    """The fleet at one time."""

    at: float
    pools: Mapping[str, PoolSigns]
    engines: Mapping[str, EngineSigns]
    away_s: float = 0.0
    """Seconds for which the gateways' event loops were blocked, in total."""
    rejects: bool = False
    """Whether a gateway rejects requests because it is late."""
    outages: tuple[Outage, ...] = ()


class Change(msgspec.Struct, frozen=True, gc=False):
    """Something that a person or program changed: `kind` is policy, leave, join, crash, canary, or other."""

    at: float
    kind: str
    pool_id: str
    subject: str
    """Id of the engine, number of the policy's version, or the like."""
    text: str


class SignLog:
    """The readings of the last KEPT_S seconds. Mutable; dense for a minute and thinner before."""

    KEPT_S = 900.0
    _DENSE_S, _DENSE_EVERY_S, _THIN_EVERY_S = 90.0, 2.0, 10.0

    def __init__(self) -> None:
        self._readings: deque[FleetSigns] = deque()
        self._newest: FleetSigns | None = None

    @property
    def newest(self) -> FleetSigns | None:
        """The last reading; None before the first."""
        return self._newest

    def add(self, signs: FleetSigns) -> None:
        """Add a reading. One that is older than the newest is dropped; a clock set far back starts a new log."""
        if self._newest is not None and signs.at <= self._newest.at:
            if self._newest.at - signs.at < self._DENSE_S:
                return
            self._readings.clear()
        self._newest = signs
        if not self._readings or signs.at - self._readings[-1].at >= self._DENSE_EVERY_S:
            self._readings.append(signs)
            self._thin(signs.at)

    def reading_at(self, moment: float) -> FleetSigns | None:
        """Return the last stored reading at or before `moment`; None if there is none."""
        for signs in reversed(self._readings):
            if signs.at <= moment:
                return signs
        return None

    def readings(self, since: float) -> list[FleetSigns]:
        """Return the stored readings from `since` on, oldest first, and the newest."""
        kept = [signs for signs in self._readings if signs.at >= since]
        if self._newest is not None and (not kept or kept[-1] is not self._newest):
            kept.append(self._newest)
        return kept

    def interval(self, pool_id: str, begin: float, end: float) -> Interval | None:
        """Return the pool's interval between the readings at `begin` and `end`; None if one of them is missing."""
        first = self.reading_at(begin)
        newest = self._newest
        last = newest if newest is not None and newest.at <= end else self.reading_at(end)
        if first is None or last is None or last.at <= first.at:
            return None
        if pool_id not in first.pools or pool_id not in last.pools:
            return None
        return Interval(first, last, pool_id)

    def recent(self, pool_id: str, span_s: float) -> Interval | None:
        """Return the last `span_s` seconds, or as much as is known of them; None if that is under a quarter."""
        if self._newest is None or not self._readings:
            return None
        begin = max(self._newest.at - span_s, self._readings[0].at)
        matches = self.interval(pool_id, begin, self._newest.at)
        return matches if matches is not None and matches.span_s >= span_s / 4 else None

    def oldest_at(self) -> float:
        """Return the time of the oldest reading; infinite without one."""
        return self._readings[0].at if self._readings else float("inf")

    def _thin(self, now: float) -> None:
        while self._readings[0].at < now - self.KEPT_S:
            self._readings.popleft()
        # The readings that have just become older than the dense part.
        edge = next((row for row, item in enumerate(self._readings) if item.at >= now - self._DENSE_S), 0)
        if edge >= 2 and self._readings[edge - 1].at - self._readings[edge - 2].at < self._THIN_EVERY_S:
            del self._readings[edge - 1]


@dataclass(frozen=True, slots=True)
class Interval:
    """One pool between two readings."""

    first: FleetSigns
    last: FleetSigns
    pool_id: str

    @property
    def span_s(self) -> float:
        """Return its length in seconds."""
        return self.last.at - self.first.at

    def tables(self) -> Tables:
        """Return the requests that ended in it."""
        return tables_since(self.last.pools[self.pool_id].tables, self.first.pools[self.pool_id].tables)

    def outcomes(self) -> Outcomes:
        """Return the outcomes of these requests."""
        now, before = (signs.pools[self.pool_id].tables[ALL].get("", NONE) for signs in (self.last, self.first))
        return grown(now, before)

    def arrivals_per_s(self) -> float:
        """Return the requests that arrived per second, whether they have ended or not."""
        waiting = self.last.pools[self.pool_id].waiting - self.first.pools[self.pool_id].waiting
        return max(0.0, requests(self.outcomes()) + waiting) / self.span_s

    def away_share(self) -> float:
        """Return the share of the time for which gateways were blocked."""
        return max(0.0, self.last.away_s - self.first.away_s) / self.span_s

    def engines(self) -> list[tuple[EngineSigns, EngineSigns]]:
        """Return the pool's engines in both readings, as they were before and after."""
        first = self.first.engines
        return [
            (first[engine_id], now)
            for engine_id, now in sorted(self.last.engines.items())
            if now.pool_id == self.pool_id and engine_id in first
        ]

    def dispatched_tokens(self) -> tuple[int, int]:
        """Return the prompt tokens of dispatched requests, and those of them that hit by the index."""
        pairs = self.engines()
        prompt = sum(max(0, now.dispatched_tokens - old.dispatched_tokens) for old, now in pairs)
        return prompt, min(prompt, sum(max(0, now.dispatched_hits - old.dispatched_hits) for old, now in pairs))

    def prompt_tokens_per_s(self) -> float:
        """Return the prompt tokens per second of dispatched requests."""
        return self.dispatched_tokens()[0] / self.span_s

    def expected_share(self) -> float | None:
        """Return the share of prompt tokens that hit by the index, 0..1; None with too few prompts to judge."""
        prompt, hit = self.dispatched_tokens()
        return hit / prompt if prompt >= MIN_PROMPT_TOKENS else None

    def reported_share(self) -> float | None:
        """Return the cached share of prompt tokens by completed requests, 0..1; None with too few to judge."""
        pairs = self.engines()
        prompt = sum(max(0, now.prompt_tokens - old.prompt_tokens) for old, now in pairs)
        cached = sum(max(0, now.cached_tokens - old.cached_tokens) for old, now in pairs)
        return min(1.0, cached / prompt) if prompt >= MIN_PROMPT_TOKENS else None

    def evicted_share(self) -> float | None:
        """Return evicted tokens over those that requests may have added; None with too few, or if it is not known.

        Requests add at most their prompts and what they generate, so that a steady share is at most one. Chunks of
        several tokens count as one.
        """
        pairs = [pair for pair in self.engines() if pair[1].block_tokens]
        removed = [
            max(0, now.removed_blocks - old.removed_blocks) * now.block_tokens
            for old, now in pairs
            if now.removed_blocks is not None and old.removed_blocks is not None
        ]
        prompt, _ = self.dispatched_tokens()
        added = prompt + sum(max(0, now.progress - old.progress) for old, now in pairs)
        return sum(removed) / added if removed and added >= MIN_PROMPT_TOKENS else None

    def late_tokenizers(self) -> dict[str, int]:
        """Return the requests whose tokens were late, by engine id."""
        return {now.engine_id: max(0, now.tokenizer_late - old.tokenizer_late) for old, now in self.engines()}

    def removed_per_s(self) -> float | None:
        """Return the blocks per second that engines evicted; None if no engine reports them."""
        known = [
            max(0, now.removed_blocks - old.removed_blocks)
            for old, now in self.engines()
            if now.removed_blocks is not None and old.removed_blocks is not None
        ]
        return sum(known) / self.span_s if known else None


MIN_PROMPT_TOKENS = 2_000
