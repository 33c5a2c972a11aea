"""Sends ended requests to the request log, off the way of requests: they append to a list, the rest is a thread's.

Every interval it takes what has ended, notes what hits and waits came to (index_trust, hindsight), makes the row of
each request and the decision of those that are to be kept in full (decision_sampling), and puts both on the bus.
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
from gateway.pool.recent_decisions import DecisionRecord
from gateway.pool.request_listener import RequestListener
from gateway.reports.decision_recorder import DecisionRecorder, traffic_row
from gateway.reports.decision_sampling import is_late, kept
from gateway.reports.ttft_parts import note_ttft

if TYPE_CHECKING:
    from gateway.base.metrics import GatewayMetrics
    from routing.values.inference_request import InferenceRequest

MAX_OPEN = 50_000
"""Requests whose end is awaited; the traffic of more is not recorded."""
MAX_ENDED = 50_000
"""Ended requests that wait for the next interval; more are not recorded."""
UNTOLD_FACTOR = 4
"""A request that began to answer is given so many times its reservation's time before its end counts as untold."""


class RequestOutbox(RequestListener):
    """Takes records from the loop's thread, at the dispatch and at the end or the rejection.

    Mutable state: both lists, the requests in progress (`_open`), and the room for ordinary decisions; recorder and
    room belong to the thread of the interval, of which there is one at a time.
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
        self._recorder = DecisionRecorder(fleet_secret)
        self._process = secrets.token_hex(8)
        self._numbers = itertools.count(1)
        self._begun: list[DecisionRecord] = []
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
            if ended or begun:
                rows, decisions = await asyncio.to_thread(self._send, begun, ended)
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

    def _send(self, begun: Sequence[DecisionRecord], ended: Sequence[DecisionRecord]) -> tuple[int, int]:
        """Send the requests that ended, and return how many rows and how many decisions that were."""
        for record in begun:
            self._recorder.hindsight.dispatched(record)
        for record in ended:
            note_ttft(record)
        late = [is_late(record) for record in ended]
        decisions = self._decisions(ended, late)
        rows = []
        for record, missed in zip(ended, late, strict=True):
            if record.keys is not None and self._records_traffic:
                rows.append(traffic_row(record, record.keys, self._secret, late=missed))
            # The record stays in memory for a while, and a long prompt has many keys.
            record.keys = None
        for number in range(max(-(-len(rows) // MAX_ROWS), -(-len(decisions) // MAX_DECISIONS))):
            batch = request_batch(
                f"{self._process}-{next(self._numbers)}",
                rows[number * MAX_ROWS : (number + 1) * MAX_ROWS],
                decisions[number * MAX_DECISIONS : (number + 1) * MAX_DECISIONS],
            )
            self._bus.append(TOPIC, encode_batch(batch))
        return len(rows), len(decisions)

    def _decisions(self, ended: Sequence[DecisionRecord], late: Sequence[bool]) -> list[StoredDecision]:
        snapshot = self._snapshot()
        version = snapshot.version if snapshot is not None else 0
        age_s = max(0.0, time.time() - snapshot.published_at) if snapshot is not None else None
        stored: list[StoredDecision] = []
        for record, share in kept(ended, late, self._room):
            stored.append(self._recorder.recorded(record, share, version, age_s))
            self._room -= not stored[-1].late
        return stored
