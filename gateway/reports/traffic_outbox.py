"""Sends requests that ended to the recordings, off their way: they append to a list, the rest is a thread's."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gateway.bus.bus import Bus
from gateway.contracts.stored_decision import UNANSWERED, session_digest
from gateway.contracts.traffic_row import (
    MAX_BATCH,
    TOPIC,
    TrafficBatch,
    TrafficRow,
    encode_batch,
    trace_blocks,
    trace_head,
)
from gateway.pool.recent_decisions import DecisionRecord
from gateway.reports.decision_outbox import UNTOLD_FACTOR
from gateway.reports.decision_sampling import is_late

if TYPE_CHECKING:
    from gateway.base.metric_families import CounterFamily

MAX_OPEN = 50_000
"""Requests whose end is awaited; more are not recorded."""
_TENANT = "tenant\0"

Noted = tuple[DecisionRecord, Sequence[int]]
"""A request with the keys of its prompt."""


class TrafficOutbox:
    """Takes every request from the loop's thread when it is granted or refused, and sends it when it has ended.

    Mutable state: the list of the interval, and the requests whose end is awaited (`_open`), which belong to the
    thread of the interval, of which there is one at a time.
    """

    def __init__(
        self, bus: Bus, counted: CounterFamily, fleet_secret: bytes, *, interval_s: float, enabled: bool = True
    ) -> None:
        self._bus = bus
        self._counted = counted
        self._secret = fleet_secret
        self._interval_s = interval_s
        self._enabled = enabled
        self._gateway = f"{socket.gethostname()}:{os.getpid()}"
        self._noted: list[Noted] = []
        self._open: list[Noted] = []
        self._flushing = asyncio.Lock()

    def noted(self, record: DecisionRecord, keys: Sequence[int]) -> None:
        """Note a request that was granted or refused, once."""
        if not self._enabled:
            return
        if len(self._noted) + len(self._open) < MAX_OPEN:
            self._noted.append((record, keys))
        else:
            self._counted.inc("dropped")

    async def run(self) -> None:
        """Send every interval, until cancelled."""
        while True:
            await asyncio.sleep(self._interval_s)
            await self.flush()

    async def flush(self, *, last: bool = False) -> None:
        """Send what has ended until now; with `last` everything, for nobody will tell the other ends."""
        async with self._flushing:
            noted, self._noted = self._noted, []
            if noted or self._open:
                sent = await asyncio.to_thread(self._send, noted, time.monotonic(), last)
                self._counted.inc("recorded", amount=sent)

    def _send(self, noted: Sequence[Noted], now: float, last: bool) -> int:
        standing: list[Noted] = []
        rows: list[TrafficRow] = []
        for each in (*self._open, *noted):
            record, keys = each
            if record.outcome or last or _untold(record, now):
                rows.append(self._row(record, keys))
            else:
                standing.append(each)
        self._open = standing
        for start in range(0, len(rows), MAX_BATCH):
            self._bus.append(TOPIC, encode_batch(TrafficBatch(self._gateway, tuple(rows[start : start + MAX_BATCH]))))
        return len(rows)

    def _row(self, record: DecisionRecord, keys: Sequence[int]) -> TrafficRow:
        pool, decision = record.pool, record.decision
        waited_s = decision.queued_s if decision.engine_id else _after(record, record.finished_s) or 0.0
        return TrafficRow(
            record.decided_at - waited_s,
            pool.entry.pool_id,
            decision.prompt_tokens,
            record.output_tokens or 0,
            trace_blocks(keys, decision.prompt_tokens, pool.entry.block_tokens),
            session_digest(self._secret, record.session_id),
            session_digest(self._secret, _TENANT + record.tenant_id),
            record.priority,
            record.outcome or UNANSWERED,
            is_late(record),
            record.ttft_s,
            _after(record, record.finished_s),
            record.cached_tokens,
            len(pool.router.view.accepting),
            decision.policy_version,
            trace_head(keys, pool.entry.block_tokens),
        )


def _untold(record: DecisionRecord, now: float) -> bool:
    """Return whether nobody will tell the request's end any more."""
    told = UNTOLD_FACTOR if record.first_token_s is not None else 1
    return now - record.arrived_s >= told * record.pool.entry.policy.reservation_ttl_s


def _after(record: DecisionRecord, moment_s: float | None) -> float | None:
    return None if moment_s is None else moment_s - record.arrived_s
