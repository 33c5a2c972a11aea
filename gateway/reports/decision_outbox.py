"""Sends ended decisions to the decision store, off the way of requests: they append to a list, the rest is a thread's.

Every interval it takes what has ended, notes what hits and waits came to (index_trust, hindsight),
keeps what is to be kept (decision_sampling), and puts it on the bus in batches.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from gateway.bus.bus import Bus
from gateway.contracts.snapshot import Snapshot
from gateway.contracts.stored_decision import MAX_BATCH, TOPIC, DecisionBatch, StoredDecision, encode_batch
from gateway.pool.pool_hits import judge_hits
from gateway.pool.recent_decisions import DecisionRecord
from gateway.reports.decision_recorder import DecisionRecorder, hit_sample
from gateway.reports.decision_sampling import kept

if TYPE_CHECKING:
    from gateway.base.metric_families import CounterFamily
    from gateway.pool.live_pool import LivePool

MAX_PENDING = 50_000
"""Ended decisions that wait for the next interval, and requests whose end is awaited; more are not recorded."""
UNTOLD_FACTOR = 4
"""A request that began to answer is given so many times its reservation's time before its end counts as untold."""


class DecisionOutbox:
    """Takes records from the loop's thread: `begun` at the grant, `ended` at the end.

    Mutable state: both lists, the requests under way (`_open`), and the room for ordinary decisions; recorder and
    room belong to the thread of the interval, of which there is one at a time.
    """

    def __init__(
        self,
        bus: Bus,
        pools: Callable[[], Iterable[LivePool]],
        snapshot: Callable[[], Snapshot | None],
        counted: CounterFamily,
        fleet_secret: bytes,
        *,
        kept_per_s: float,
        interval_s: float,
    ) -> None:
        self._bus = bus
        self._pools = pools
        self._snapshot = snapshot
        self._counted = counted
        self._kept_per_s = kept_per_s
        self._interval_s = interval_s
        self._recorder = DecisionRecorder(fleet_secret)
        self._gateway = f"{socket.gethostname()}:{os.getpid()}"
        self._begun: list[DecisionRecord] = []
        self._ended: list[DecisionRecord] = []
        self._open: deque[DecisionRecord] = deque(maxlen=MAX_PENDING)
        self._flushing = asyncio.Lock()
        self._flushed_s = time.monotonic()
        self._most = kept_per_s * max(1.0, 2 * interval_s)
        """Ordinary decisions that may be kept in one go, after a pause."""
        self._room = self._most

    def begun(self, record: DecisionRecord) -> None:
        """Note a granted request."""
        if len(self._begun) < MAX_PENDING:
            self._begun.append(record)

    def ended(self, record: DecisionRecord) -> None:
        """Note a request's end."""
        if len(self._ended) < MAX_PENDING:
            self._ended.append(record)
        else:
            self._counted.inc("dropped")

    async def run(self) -> None:
        """Send every interval, until cancelled."""
        while True:
            await asyncio.sleep(self._interval_s)
            await self.flush()

    async def flush(self) -> None:
        """Send what has ended until now."""
        async with self._flushing:
            now = time.monotonic()
            self._room = min(self._most, self._room + self._kept_per_s * (now - self._flushed_s))
            self._flushed_s = now
            begun, self._begun = self._begun, []
            ended, self._ended = self._ended, []
            ended += self._untold(begun, now)
            pools = list(self._pools())
            if ended or begun:
                sent = await asyncio.to_thread(self._send, begun, ended)
                self._counted.inc("kept", amount=sent)
                self._counted.inc("left_out", amount=len(ended) - sent)
            # Facts of engines belong to the loop's thread.
            for pool in pools:
                judge_hits(pool, now)

    def _untold(self, begun: Sequence[DecisionRecord], now: float) -> list[DecisionRecord]:
        """Follow the requests that began, and return those whose end nobody will tell any more."""
        untold: list[DecisionRecord] = []
        following = self._open
        following.extend(record for record in begun if not record.outcome)
        while following:
            record = following[0]
            if not record.outcome:
                told = UNTOLD_FACTOR if record.first_token_s is not None else 1
                if now - record.arrived_s < told * record.pool.entry.policy.reservation_ttl_s:
                    break
                record.recorded = True
                untold.append(record)
            following.popleft()
        return untold

    def _send(self, begun: Sequence[DecisionRecord], ended: Sequence[DecisionRecord]) -> int:
        recorder = self._recorder
        for record in begun:
            recorder.hindsight.granted(record)
        for record in ended:
            record.pool.affinity.ended(record)
        chosen = kept(ended, self._room)
        snapshot = self._snapshot()
        version = snapshot.version if snapshot is not None else 0
        age_s = max(0.0, time.time() - snapshot.published_at) if snapshot is not None else None
        stored: list[StoredDecision] = []
        for record, share in chosen:
            engine = record.pool.engines.get(record.decision.engine_id)
            sample = hit_sample(record, engine)
            if engine is not None and sample is not None:
                engine.hits.take(sample)
            stored.append(recorder.stored(record, share, version, age_s))
            self._room -= not stored[-1].late
        for start in range(0, len(stored), MAX_BATCH):
            batch = DecisionBatch(self._gateway, tuple(stored[start : start + MAX_BATCH]))
            self._bus.append(TOPIC, encode_batch(batch))
        return len(stored)
