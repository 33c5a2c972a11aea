"""Generates requests like those of the Mooncake conversation trace, only from its published statistics.

Published or measured there: a mean of 12,035 prompt and 343 output tokens, 3.4 requests per second, one system block
shared by all requests, 37-40 % of prompt tokens hit in an infinite cache, and 42 % of requests that share at least half
of their prompt. The model behind them: 61 % of requests start a session; sessions grow turn by turn with gaps of about
two minutes. Occasionally a document becomes popular: for a minute or two, many sessions start with the same long
prefix, which causes hotspots.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count, islice
from math import log

import msgspec

from simulator.workloads.trace import BLOCK_TOKENS, TraceRow

MAX_PROMPT_TOKENS = 126_000
_SYSTEM_BLOCK = 0
_SYSTEM_TOKENS = 880
"""Length of the shared opening. Its first block is shared, the other tokens differ from request to request."""


class WorkloadShape(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of the generator; the defaults reproduce the published statistics."""

    qps: float = 3.5
    """Mean requests per second over a long time."""
    mean_turns: float = 1.6
    """Mean requests per session."""
    follow_up_share: float = 0.31
    """Share of sessions with more than one turn."""
    gap_median_s: float = 123.0
    """Median seconds between the arrivals of two turns of a session."""
    popular_every_s: float = 150.0
    """Mean seconds until the next document becomes popular."""
    popular_for_s: float = 90.0
    """Seconds for which a document stays popular."""
    popular_share: float = 0.12
    """Share of sessions that start with a popular document while there is one."""
    tick_ms: int = 0
    """Resolution of timestamps, which are rounded down; in the real trace it is 3,000."""


@dataclass(slots=True, eq=False)
class _Session:
    """A conversation: the ids of its full blocks, its length and its remaining turns."""

    name: str
    blocks: list[int]
    length: int
    turns_left: int


@dataclass(slots=True, eq=False)
class _Popular:
    """A document with which many sessions start until `ends_s`."""

    blocks: list[int]
    ends_s: float


def generate(rows: int, seed: int, shape: WorkloadShape | None = None) -> list[TraceRow]:
    """Return the first `rows` requests of the workload for `seed`, ordered by arrival."""
    return list(islice(conversation_like(seed, shape), rows))


def conversation_like(seed: int, shape: WorkloadShape | None = None) -> Iterator[TraceRow]:
    """Yield an endless sequence of requests ordered by arrival; the same seed and shape give the same requests."""
    return _Generator(seed, shape or WorkloadShape()).rows()


class _Generator:
    """Generates the requests. Mutable state: the RNG, the next block id, the unfinished sessions, and the popular
    document.
    """

    def __init__(self, seed: int, shape: WorkloadShape) -> None:
        self._rng = random.Random(seed)
        self._shape = shape
        self._ids = count(_SYSTEM_BLOCK + 1)
        self._sessions = count(1)
        self._due: list[tuple[float, int, _Session]] = []
        self._popular: _Popular | None = None
        self._next_popular_s = self._rng.expovariate(1 / shape.popular_every_s)

    def rows(self) -> Iterator[TraceRow]:
        openings_per_s = self._shape.qps / self._shape.mean_turns
        opening_s = self._rng.expovariate(openings_per_s)
        for order in count():
            if self._due and self._due[0][0] <= opening_s:
                at_s, _, session = heappop(self._due)
                self._grow(session)
            else:
                at_s, session = opening_s, self._open(opening_s)
                opening_s += self._rng.expovariate(openings_per_s)
            yield self._row(at_s, session)
            if session.turns_left:
                session.turns_left -= 1
                gap_s = self._rng.lognormvariate(log(self._shape.gap_median_s), 0.95)
                # The order is unique, so that sessions are never compared.
                heappush(self._due, (at_s + gap_s, order, session))

    def _row(self, at_s: float, session: _Session) -> TraceRow:
        ids = list(session.blocks)
        if session.length > len(ids) * BLOCK_TOKENS:
            # A partial last block is the request's own: the next turn continues it with other text.
            ids.append(next(self._ids))
        at_ms = int(at_s * 1000)
        tick = max(1, self._shape.tick_ms)
        return TraceRow(
            timestamp=at_ms - at_ms % tick,
            input_length=session.length,
            output_length=self._output_length(),
            hash_ids=tuple(ids),
            session_id=session.name,
        )

    def _open(self, at_s: float) -> _Session:
        prefix = [_SYSTEM_BLOCK]
        document = self._popular_document(at_s)
        if document is not None and self._rng.random() < self._shape.popular_share:
            prefix = document.blocks
            length = len(prefix) * BLOCK_TOKENS + 40 + round(self._rng.lognormvariate(6.6, 1.1))
        else:
            length = _SYSTEM_TOKENS + self._opening_length()
        session = _Session(f"s{next(self._sessions)}", list(prefix), 0, self._more_turns())
        self._extend(session, length)
        return session

    def _grow(self, session: _Session) -> None:
        """Add one answer and one question; occasionally the user first goes back several turns."""
        rng = self._rng
        if rng.random() < 0.08:
            del session.blocks[rng.randint(1, len(session.blocks)) :]
            session.length = len(session.blocks) * BLOCK_TOKENS
        long = rng.random() < 0.16
        added = rng.lognormvariate(8.3, 0.9) if long else rng.lognormvariate(5.9, 0.9)
        self._extend(session, session.length + max(1, round(added)))

    def _extend(self, session: _Session, length: int) -> None:
        session.length = min(length, MAX_PROMPT_TOKENS)
        while (len(session.blocks) + 1) * BLOCK_TOKENS <= session.length:
            session.blocks.append(next(self._ids))

    def _popular_document(self, at_s: float) -> _Popular | None:
        rng, shape = self._rng, self._shape
        if at_s >= self._next_popular_s:
            blocks = [_SYSTEM_BLOCK, *islice(self._ids, rng.randint(10, 40))]
            self._popular = _Popular(blocks, at_s + rng.expovariate(1 / shape.popular_for_s))
            self._next_popular_s = at_s + rng.expovariate(1 / shape.popular_every_s)
        if self._popular is not None and at_s >= self._popular.ends_s:
            self._popular = None
        return self._popular

    def _more_turns(self) -> int:
        """Return the number of turns after the first: zero for most sessions, else geometric, so that the mean is
        mean_turns.
        """
        shape, rng = self._shape, self._rng
        if rng.random() >= shape.follow_up_share:
            return 0
        # Of the sessions that have any, so that the mean over all is mean_turns.
        more = (shape.mean_turns - 1) / shape.follow_up_share
        turns = 1
        while rng.random() < 1 - 1 / more:
            turns += 1
        return turns

    def _opening_length(self) -> int:
        rng = self._rng
        short = rng.random() < 0.22
        return round(rng.lognormvariate(log(70), 1.2) if short else rng.lognormvariate(8.9, 1.15))

    def _output_length(self) -> int:
        rng = self._rng
        short = rng.random() < 0.23
        drawn = rng.lognormvariate(log(35), 1.0) if short else rng.lognormvariate(log(400), 0.36)
        return max(1, min(2000, round(drawn)))
