"""Sends ended requests to the request log, off the way of requests: they append to a list, the rest is a thread's.

Every interval it takes what has ended, notes what hits came to (index_trust) and where TTFT went, makes the row of
each request and the decision of those that are to be kept in full (decision_sampling), and puts both on the bus.
What can be told of these later is told there: regret, index rows, statistics.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from typing_extensions import override

from gateway.bus.bus import Bus
from gateway.contracts.request_batch import MAX_DECISIONS, MAX_ROWS, TOPIC, encode_batch, request_batch
from gateway.contracts.snapshot import Snapshot
from gateway.contracts.stored_decision import StoredDecision
from gateway.contracts.traffic_row import TrafficRow
from gateway.pool.recent_decisions import DecisionRecord
from gateway.pool.request_listener import RequestListener
from gateway.reports.decision_recorder import DecisionRecorder, hit_sample
from gateway.reports.decision_sampling import is_late, kept
from gateway.reports.overtaken import Overtaken
from gateway.reports.traffic_rows import traffic_rows
from gateway.reports.ttft_parts import split_of

if TYPE_CHECKING:
    from gateway.base.metrics import GatewayMetrics
    from gateway.pool.live_pool import LivePool
    from gateway.pool.ttft_split import Noted
    from routing.values.inference_request import InferenceRequest

MAX_OPEN = 50_000
"""Requests whose end is awaited; the traffic of more is not recorded."""
MAX_ENDED = 50_000
"""Ended requests that wait for the next interval; more are not recorded."""
FEW = 32
"""Requests that are sent without a thread."""
UNTOLD_FACTOR = 4
"""A request that began to answer is given so many times its reservation's time before its end counts as untold."""


class RequestOutbox(RequestListener):
    """Takes records from the loop's thread, at the dispatch and at the end or the rejection.

    Mutable state: both lists, the requests in progress (`_open`), and the room for ordinary decisions; room and
    dispatches belong to the thread of the interval, of which there is one at a time.
    """

    def __init__(
        self,
        bus: Bus,
        snapshot: Callable[[], Snapshot | None],
        metrics: GatewayMetrics,
        fleet_secret: bytes,
        *,
        kept_per_s: float,
        interval_s: float,
        records_traffic: bool = True,
    ) -> None:
        self._bus = bus
        self._snapshot = snapshot
        self._metrics = metrics
        self._secret = fleet_secret
        self._kept_per_s = kept_per_s
        self._interval_s = interval_s
        self._records_traffic = records_traffic
        self._overtaken = Overtaken()
        self._process = secrets.token_hex(8)
        self._numbers = itertools.count(1)
        self._begun: list[DecisionRecord] = []
        self._waited: deque[DecisionRecord] = deque(maxlen=MAX_OPEN)
        self._ended: list[DecisionRecord] = []
        self._open: deque[DecisionRecord] = deque()
        self._flushing = asyncio.Lock()
        self._flushed_s = time.monotonic()
        self._most = kept_per_s * max(1.0, 2 * interval_s)
        """Ordinary decisions that may be kept in one go, after a pause."""
        self._room = self._most

    @override
    def dispatched(self, record: DecisionRecord, request: InferenceRequest, took_s: float, again: bool) -> None:
        if again:
            return
        if record.decision.queued_s > 0.0:
            self._waited.append(record)
        if len(self._begun) + len(self._open) < MAX_OPEN:
            self._begun.append(record)
        else:
            self._drop_traffic(record)

    @override
    def ended(self, record: DecisionRecord, now: float, on_time: bool) -> None:
        if record.recorded:
            return
        if len(self._ended) < MAX_ENDED:
            self._ended.append(record)
        else:
            self._metrics.decision_records.inc("dropped")
            self._drop_traffic(record)

    async def run(self) -> None:
        """Send every interval, until cancelled."""
        while True:
            await asyncio.sleep(self._interval_s)
            await self.flush()

    async def flush(self, *, last: bool = False) -> None:
        """Send what has ended until now; with `last` everything, for nobody will tell the other ends."""
        async with self._flushing:
            now = time.monotonic()
            self._room = min(self._most, self._room + self._kept_per_s * (now - self._flushed_s))
            self._flushed_s = now
            begun, self._begun = self._begun, []
            ended, self._ended = self._ended, []
            ended += self._untold(begun, now, last=last)
            for record in tuple(self._waited):
                self._overtaken.dispatched(record)
            self._waited.clear()
            # A few take less time than it takes to hand them to a thread.
            few = len(ended) <= FEW
            rows, decisions = self._send(ended) if few else await asyncio.to_thread(self._send, ended)
            self._metrics.traffic_rows.inc("recorded", amount=rows)
            self._metrics.decision_records.inc("kept", amount=decisions)
            self._metrics.decision_records.inc("left_out", amount=len(ended) - decisions)

    def _drop_traffic(self, record: DecisionRecord) -> None:
        if self._records_traffic and record.keys is not None:
            self._metrics.traffic_rows.inc("dropped")
        record.keys = None

    def _untold(self, begun: Sequence[DecisionRecord], now: float, *, last: bool) -> list[DecisionRecord]:
        """Follow the requests that began, and return those whose end nobody will tell any more."""
        untold: list[DecisionRecord] = []
        following = self._open
        following.extend(record for record in begun if not record.outcome)
        while following:
            record = following[0]
            if not record.outcome:
                told = UNTOLD_FACTOR if record.first_token_s is not None else 1
                if not last and now - record.arrived_s < told * record.pool.entry.policy.reservation_ttl_s:
                    break
                record.recorded = True
                untold.append(record)
            following.popleft()
        return untold

    def _send(self, ended: Sequence[DecisionRecord]) -> tuple[int, int]:
        """Send the requests that ended, and return how many rows and how many decisions that were."""
        late = [is_late(record) for record in ended]
        decisions, sent = self._decisions(ended, late), 0
        # In parts, each of which stays in the processor's cache from one step to the next.
        for start in range(0, len(ended), MAX_ROWS):
            part = ended[start : start + MAX_ROWS]
            _note_ttft(part)
            rows = traffic_rows(part, late[start : start + MAX_ROWS], self._secret) if self._records_traffic else []
            for record in part:
                # The record stays in memory for a while, and a long prompt has many keys.
                record.keys = None
            number = start // MAX_ROWS * MAX_DECISIONS
            self._append(rows, decisions[number : number + MAX_DECISIONS])
            sent += len(rows)
        for number in range(-(-len(ended) // MAX_ROWS) * MAX_DECISIONS, len(decisions), MAX_DECISIONS):
            self._append((), decisions[number : number + MAX_DECISIONS])
        return sent, len(decisions)

    def _append(self, rows: Sequence[TrafficRow], decisions: Sequence[StoredDecision]) -> None:
        if rows or decisions:
            name = f"{self._process}-{next(self._numbers)}"
            self._bus.append(TOPIC, encode_batch(request_batch(name, rows, decisions)))

    def _decisions(self, ended: Sequence[DecisionRecord], late: Sequence[bool]) -> list[StoredDecision]:
        """Return the records to keep; what their hits came to is noted of their engines."""
        snapshot = self._snapshot()
        version = snapshot.version if snapshot is not None else 0
        age_s = max(0.0, time.time() - snapshot.published_at) if snapshot is not None else None
        recorder, stored = DecisionRecorder(self._secret, version, age_s), []
        for record, missed, share in kept(ended, late, self._room):
            sample, engine = hit_sample(record), record.pool.engines.get(record.decision.engine_id)
            if engine is not None and sample is not None:
                engine.hits.take(sample)
            overtaken_s = self._overtaken.seconds(record)
            stored.append(recorder.stored(record, sample, late=missed, share=share, overtaken_s=overtaken_s))
            self._room -= not missed
        return stored


def _note_ttft(ended: Sequence[DecisionRecord]) -> None:
    """Count the requests in their pools' sums; any thread may."""
    by_pool: dict[LivePool, list[Noted]] = {}
    for record in ended:
        parts = split_of(record)
        if parts is not None:
            by_pool.setdefault(record.pool, []).append(parts)
    for pool, noted in by_pool.items():
        pool.affinity.ttft.note(noted)
