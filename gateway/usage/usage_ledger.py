"""Writes the usage of each request to the journal before its last byte is sent, and delivers the journal to the control
plane.

A request counts at the gateway that sends it to an engine or provider, so a request forwarded between regions counts
once. Entries are sent again until the control plane confirms them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from typing_extensions import override

from gateway.base.event_log import log_event
from gateway.bus.bus import Bus
from gateway.contracts.snapshot import ApiKeyEntry, PriceEntry, Snapshot
from gateway.contracts.wire import UnreadableMessageError
from gateway.pools.pool.request_listener import RequestListener
from gateway.pools.traffic.traffic_window import COMPLETED, FAILED, REJECTED
from gateway.server.process.drain import CUT_OFF
from gateway.usage.key_budgets import KeyBudgets
from gateway.usage.usage_journal import FOLDER, MAX_OPEN, UsageJournal
from gateway.usage.usage_messages import (
    ENTRIES_TOPIC,
    INTERRUPTED,
    MAX_ENTRIES,
    NANO,
    OVER_BUDGET,
    UNREPORTED,
    WOULD_REJECT,
    PackedBatch,
    UsageEntry,
    UsageState,
    decode_entry,
    decode_state,
    encode_entry,
    encode_packed,
)

if TYPE_CHECKING:
    from gateway.base.metrics import GatewayMetrics
    from gateway.pools.pool.recent_decisions import DecisionRecord
    from routing.values.inference_request import InferenceRequest

SHIP_S = 0.5
"""Interval of deliveries."""
BATCHES = 8
"""Limit of batches in one delivery."""
RESEND_S = 5.0
"""Time without progress of the mark after which everything above it is sent again."""
ALIVE_S = 5.0
"""Interval at which a gateway without new entries reports that it runs."""
REPORT_WAIT = 4.0
"""Multiple of its pool's reservation time after which a request that its caller does not report is counted."""
STATE_FILE = "state"
_MILLION = 1_000_000


class OpenRequest(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A request that was sent to an engine or provider and has not ended."""

    at_ms: int
    tenant_id: str
    key_id: str
    pool_id: str
    model: str
    proxied: bool
    """Whether its answer passes through this gateway, so that the gateway's end cuts it off."""
    expires_ms: int = 0
    """When a request that its caller reports counts as unreported."""


_encode_open = msgspec.msgpack.Encoder().encode
_decode_open = msgspec.msgpack.Decoder(OpenRequest).decode


class UsageLedger(RequestListener):
    """One gateway's usage. `start` comes before the first request.

    Mutable: the prices, the journal, what was sent, and the requests whose callers report their ends.
    """

    def __init__(
        self,
        bus: Bus,
        state_dir: Path,
        metrics: GatewayMetrics,
        *,
        clock_ms: Callable[[], int] = lambda: int(time.time() * 1000),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bus = bus
        self._state_dir = state_dir
        self._metrics = metrics
        self._clock_ms = clock_ms
        self._monotonic = monotonic
        self.budgets = KeyBudgets(metrics.budget_rejections, clock_ms)
        self._prices: dict[str, tuple[int, int, int]] = {}
        self._journal: UsageJournal | None = None
        self._sent_s = self._progress_s = monotonic()
        self._reported: dict[str, DecisionRecord] = {}
        """Open requests of the decision API, in the order of their dispatch."""
        self.orphans: dict[str, OpenRequest] = {}
        """Such requests of an earlier process, whose ends can still be reported."""
        self._unsaved: bytes | None = None

    @property
    def journal(self) -> UsageJournal:
        """Return the journal, which `start` opens."""
        if self._journal is None:
            raise RuntimeError("the usage ledger is not started")
        return self._journal

    async def start(self) -> None:
        """Open the journal, and count the answers that an earlier process left unfinished as interrupted."""
        self._journal = journal = await asyncio.to_thread(UsageJournal, self._state_dir, ends=_interrupted)
        self.orphans = {name.decode(): _decode_open(payload) for name, payload in journal.open.items()}
        self.budgets.sent = journal.mark
        stored = await asyncio.to_thread(_stored_state, self._state_dir)
        if stored is not None:
            self.take_state(stored)

    async def stop(self) -> None:
        """Send what is left, and release the journal. Requests that end later are not counted."""
        if self._journal is not None:
            await self.tick()
            journal, self._journal = self._journal, None
            journal.close()

    def apply(self, snapshot: Snapshot) -> None:
        """Take the snapshot's budgets and prices."""
        self.budgets.take_budgets(snapshot.budgets, snapshot.api_keys)
        self._prices = {price.model: _per_token(price) for price in snapshot.prices}

    def resume(self, state: bytes | None) -> None:
        """Count entries of an earlier process that are above the mark of `state` toward the budgets.

        Call it once, after the first snapshot.
        """
        if state is not None:
            self.take_state(state)
        journal, number = self.journal, self.budgets.mark
        while True:
            _, payloads = journal.entries(number, MAX_ENTRIES)
            for payload in payloads:
                entry = decode_entry(payload)
                number = entry.number
                self.budgets.spend(entry)
            if not payloads:
                return

    def take_state(self, value: bytes) -> None:
        """Take marks and grants from the control plane."""
        try:
            state: UsageState = decode_state(value)
        except UnreadableMessageError as error:
            log_event("usage_state_rejected", level=logging.WARNING, reason=str(error))
            return
        if self._journal is None or state.version <= self.budgets.version:
            return
        journal = self._journal
        self.budgets.take_state(state, journal.name)
        if self.budgets.mark > journal.mark:
            journal.acknowledge(self.budgets.mark)
            self.budgets.sent = max(self.budgets.sent, journal.mark)
            self._progress_s = self._monotonic()
        self._unsaved = value

    def admit(self, key: ApiKeyEntry, pool_id: str, model: str) -> None:
        """Raise ApiError 429 if a hard budget of the key is used up. What shadow budgets would reject is counted."""
        hard, shadows = self.budgets.exhausted(key)
        for budget in shadows:
            self._refuse(key, pool_id, model, WOULD_REJECT, budget.budget_id)
        if hard is not None:
            self._refuse(key, pool_id, model, OVER_BUDGET, hard.budget_id)
            raise self.budgets.rejection(hard)

    def _refuse(self, key: ApiKeyEntry, pool_id: str, model: str, outcome: str, budget: str) -> None:
        requests = 1 if outcome == OVER_BUDGET else 0
        self._add(
            UsageEntry(
                self._number, self._clock_ms(), key.tenant_id, key.key_id, pool_id, model, outcome,
                requests=requests, budget=budget,
            )
        )  # fmt: skip

    # -- events of requests

    @override
    def dispatched(self, record: DecisionRecord, request: InferenceRequest, took_s: float, again: bool) -> None:
        if not again:
            self._open(record, record.pool.entry.pool_id, record.pool.entry.served_model)

    @override
    def sent_out(self, record: DecisionRecord, now: float) -> None:
        self._open(record, "", _provider_model(record))

    @override
    def ended(self, record: DecisionRecord, now: float) -> None:
        entry = record.pool.entry
        self._end(record, entry.pool_id, entry.served_model, None)

    @override
    def provider_ended(self, record: DecisionRecord, now: float) -> None:
        cost = record.service.cost if record.service is not None else None
        self._end(record, "", _provider_model(record), round((cost or 0.0) * NANO))

    def _open(self, record: DecisionRecord, pool_id: str, model: str) -> None:
        if self._journal is None:
            return
        now_ms, expires_ms = self._clock_ms(), 0
        if not record.proxied:
            expires_ms = now_ms + int(REPORT_WAIT * record.pool.entry.policy.reservation_ttl_s * 1000)
            record.usage_expires_ms = expires_ms
            if len(self._reported) < MAX_OPEN:
                self._reported[record.decision.decision_id] = record
        opened = (now_ms, record.tenant_id, record.key_id, pool_id, model, record.proxied, expires_ms)
        self._journal.begin(record.decision.decision_id, _encode_open(opened))

    def _end(self, record: DecisionRecord, pool_id: str, model: str, charge: int | None) -> None:
        outcome, prompt, cached, output = record.outcome, 0, 0, 0
        if outcome == COMPLETED:
            counted = record.engine_prompt_tokens
            prompt = record.decision.prompt_tokens if counted is None else counted
            cached, output = min(record.cached_tokens or 0, prompt), record.output_tokens or 0
        elif outcome == FAILED and record.error == CUT_OFF:
            outcome = INTERRUPTED
        if not record.proxied:
            self._reported.pop(record.decision.decision_id, None)
        self._add(
            UsageEntry(
                self._number,
                self._clock_ms(),
                record.tenant_id,
                record.key_id,
                pool_id,
                model,
                outcome,
                record.late and outcome not in (FAILED, REJECTED, INTERRUPTED),
                prompt,
                cached,
                output,
                self._charge(model, prompt, cached, output) if charge is None else charge,
                0 if record.usage_expires_ms < 0 else 1,
            ),
            record.decision.decision_id,
        )

    def report_orphan(self, decision_id: str, tenant_id: str, prompt: int, cached: int, output: int) -> bool:
        """Count the complete answer of a request that an earlier process decided. Return False if it is unknown."""
        opened = self.orphans.get(decision_id)
        if opened is None or opened.tenant_id != tenant_id:
            return False
        del self.orphans[decision_id]
        charge = self._charge(opened.model, prompt, min(cached, prompt), output)
        entry = _entry_of(opened, self._number, self._clock_ms(), COMPLETED)
        used = {"prompt": prompt, "cached": min(cached, prompt), "output": output, "charge": charge}
        self._add(msgspec.structs.replace(entry, **used), decision_id)
        return True

    @property
    def _number(self) -> int:
        return self._journal.last + 1 if self._journal is not None else 0

    def _add(self, entry: UsageEntry, decision_id: str = "") -> None:
        if self._journal is not None:
            self._journal.add(encode_entry(entry), decision_id)
            self.budgets.spend(entry)

    def _charge(self, model: str, prompt: int, cached: int, output: int) -> int:
        price = self._prices.get(model)
        return 0 if price is None else (prompt - cached) * price[0] + cached * price[1] + output * price[2]

    # -- delivery

    async def tick(self) -> None:
        """Deliver new entries, write the journal to the disk, and count requests that their callers do not report."""
        self._expire()
        self._deliver()
        journal, state = self.journal, self._unsaved
        self._metrics.usage_waiting.set(value=journal.waiting)
        self._metrics.usage_lost.set(value=journal.lost)
        for budget_id, used in self.budgets.used().items():
            self._metrics.budget_used.set(budget_id, value=used)
        file, self._unsaved = journal.unsynced(), None
        if state is not None or file is not None:
            await asyncio.to_thread(_write, self._state_dir, state, file)

    def _deliver(self) -> None:
        journal, budgets, now_s = self.journal, self.budgets, self._monotonic()
        if budgets.sent > journal.mark and now_s - self._progress_s > RESEND_S:
            budgets.sent = journal.mark
            self._progress_s = now_s
        for _ in range(BATCHES):
            after, payloads = journal.entries(budgets.sent, MAX_ENTRIES)
            if not payloads and now_s - self._sent_s < ALIVE_S:
                return
            if budgets.sent <= journal.mark:
                self._progress_s = now_s
            entries = [msgspec.Raw(payload) for payload in payloads]
            batch = PackedBatch(journal.name, after, journal.mark, budgets.version, entries)
            self._bus.append(ENTRIES_TOPIC, encode_packed(batch))
            self._sent_s = now_s
            if not payloads:
                return
            budgets.sent = decode_entry(payloads[-1]).number

    def _expire(self) -> None:
        now_ms = self._clock_ms()
        while self._reported:
            decision_id, record = next(iter(self._reported.items()))
            if record.usage_expires_ms > now_ms:
                break
            del self._reported[decision_id]
            entry = record.pool.entry
            # Before the end: a late report adds its tokens, and counts no further request.
            record.usage_expires_ms = -1
            opened = OpenRequest(now_ms, record.tenant_id, record.key_id, entry.pool_id, entry.served_model, False)
            self._add(_entry_of(opened, self._number, now_ms, UNREPORTED), decision_id)
        for decision_id in [name for name, opened in self.orphans.items() if opened.expires_ms <= now_ms]:
            opened = self.orphans.pop(decision_id)
            self._add(_entry_of(opened, self._number, now_ms, UNREPORTED), decision_id)


def _entry_of(opened: OpenRequest, number: int, at_ms: int, outcome: str) -> UsageEntry:
    return UsageEntry(number, at_ms, opened.tenant_id, opened.key_id, opened.pool_id, opened.model, outcome)


def _interrupted(payload: bytes, number: int) -> bytes | None:
    """Return the entry of an answer that the end of an earlier process cut off; None: its caller may report it."""
    opened = _decode_open(payload)
    if not opened.proxied:
        return None
    return encode_entry(_entry_of(opened, number, opened.at_ms, INTERRUPTED))


def _provider_model(record: DecisionRecord) -> str:
    return record.service.provider_model if record.service is not None else ""


def _per_token(price: PriceEntry) -> tuple[int, int, int]:
    """Return the nano-dollars of one uncached prompt token, one cached token, and one output token."""
    cached = price.prompt if price.cached is None else price.cached
    prompt, cached, output = (round(dollars * NANO / _MILLION) for dollars in (price.prompt, cached, price.output))
    return prompt, cached, output


def _stored_state(state_dir: Path) -> bytes | None:
    try:
        return (state_dir / FOLDER / STATE_FILE).read_bytes()
    except OSError:
        return None


def _write(state_dir: Path, state: bytes | None, file: int | None) -> None:
    """Store the state, and write the journal's pages to the disk. Failures are logged: usage remains in memory."""
    try:
        if state is not None:
            path = state_dir / FOLDER / STATE_FILE
            draft = path.with_suffix(f".{os.getpid()}")
            draft.write_bytes(state)
            draft.rename(path)
        if file is not None:
            os.fdatasync(file)
    except OSError as error:
        log_event("usage_not_synced", level=logging.WARNING, reason=error.strerror or type(error).__name__)
