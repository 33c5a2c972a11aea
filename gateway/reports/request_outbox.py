"""Sends ended requests to the request log: the shape of each, and the complete decisions of some.

A request's row is packed when the request ends, while its record is still in the CPU cache. In every interval, the
outbox takes the ended requests, adds their parts of TTFT, builds the decisions that are stored completely
(decision_recorder), and publishes rows and decisions on the bus. The receiver computes everything that can be computed
later: regret, index rows, statistics. New requests are also taken from the recent decisions once per interval, because
a listener on each dispatch would cost a tenth more.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from itertools import chain, count
from math import ceil
from typing import TYPE_CHECKING

from msgspec.structs import replace
from typing_extensions import override

from gateway.bus.bus import Bus
from gateway.contracts.request_batch import MAX_DECISIONS, MAX_ROWS, TOPIC, encode_batch, request_batch
from gateway.contracts.snapshot import Snapshot
from gateway.contracts.stored_decision import DIGESTS, StoredDecision
from gateway.pools.pool.ended_hits import hit_sample
from gateway.pools.pool.recent_decisions import DecisionRecord, RecentDecisions
from gateway.pools.pool.request_listener import RequestListener
from gateway.pools.traffic.traffic_window import REJECTED
from gateway.reports.decision_recorder import DecisionRecorder
from gateway.reports.queue_overtakes import QueueOvertakes
from gateway.reports.traffic_rows import left, traffic_row
from kvstore.keys.keyring import SecretKey

if TYPE_CHECKING:
    from gateway.base.metrics import GatewayMetrics
    from gateway.pools.traffic.ttft_split import Noted

MAX_OPEN = 50_000
"""Limit of requests whose end is awaited. The traffic of further requests is not recorded."""
MAX_ENDED = 50_000
"""Limit of ended requests that wait for the next interval, separately for late ones and others. Further requests are
not recorded.
"""
MAX_SPLIT = 32
"""Requests per interval whose TTFT is split, which is enough for means and percentiles over minutes."""
FEW = 32
"""Number of decisions that are built and sent without a thread."""
UNREPORTED_FACTOR = 4
"""Multiple of its reservation time after which a request that began to answer counts as unreported."""

Kept = tuple[DecisionRecord, float]
"""A record, and the share of similar records that is kept."""


class RequestOutbox(RequestListener):
    """Receives records on the loop's thread when requests end or are rejected.

    Mutable: the ended requests (`_ordinary`, `_late`, `_rows`), the requests in progress (`_open`), the remaining
    number of ordinary decisions, and the dispatches after a wait, which belong to one interval.
    """

    def __init__(
        self,
        bus: Bus,
        snapshot: Callable[[], Snapshot | None],
        metrics: GatewayMetrics,
        secret: SecretKey,
        recent: RecentDecisions,
        *,
        kept_per_s: float,
        interval_s: float,
        records_traffic: bool = True,
    ) -> None:
        self._bus = bus
        self._snapshot = snapshot
        self._metrics = metrics
        self._digest_key = secret.derive(DIGESTS)
        self._recent = recent
        self._kept_per_s = kept_per_s
        self._records_traffic = records_traffic
        self._overtakes = QueueOvertakes()
        self._recorder = DecisionRecorder(self._digest_key)
        self._process = secrets.token_hex(8)
        self._numbers = count(1)
        self._open: list[DecisionRecord] = []
        self._ordinary: list[DecisionRecord] = []
        self._late: list[DecisionRecord] = []
        self._rows: list[bytes] = []
        self._flushing = asyncio.Lock()
        self._flushed_s = time.monotonic()
        self._most = kept_per_s * max(1.0, 2 * interval_s)
        """Limit of ordinary decisions kept at one time after a pause."""
        self._room = self._most

    @override
    def ended(self, record: DecisionRecord, now: float) -> None:
        if record.recorded:
            return
        like = self._late if record.late else self._ordinary
        if len(like) >= MAX_ENDED:
            self._metrics.decision_records.inc("dropped")
            self._drop_traffic(record)
            return
        like.append(record)
        # The record stays in memory for a while, and a long prompt has many keys.
        keys, record.keys = record.keys, None
        known = keys is not None or record.unread
        if known and self._records_traffic and (record.hop is None or not left(record)):
            # A request that was rejected unread has neither blocks nor a length.
            self._rows.append(traffic_row(record, keys or (), self._digest_key))

    @override
    def provider_ended(self, record: DecisionRecord, now: float) -> None:
        # Each is kept, because costs are summed from the records.
        if len(self._late) >= MAX_ENDED:
            self._metrics.decision_records.inc("dropped")
            self._drop_traffic(record)
            return
        self._late.append(record)
        keys, record.keys = record.keys, None
        if keys is not None and self._records_traffic:
            # The fleet did not serve it, and what-ifs simulate the fleet.
            unserved = {"outcome": REJECTED, "first_token_s": None, "output_tokens": None, "late": True}
            self._rows.append(traffic_row(replace(record, **unserved), keys, self._digest_key))

    async def flush(self, *, last: bool = False) -> None:
        """Send the requests that have ended. `last`: send everything, because other ends will not be reported."""
        # The thread of an earlier flush may still read the dispatches of its interval.
        async with self._flushing:
            now = time.monotonic()
            self._room = min(self._most, self._room + self._kept_per_s * (now - self._flushed_s))
            self._flushed_s = now
            self._follow()
            for record in self._unreported(now, last=last):
                record.late = record.misses_objective()
                self.ended(record, now)
                record.recorded = True
            ordinary, late, rows = self._ordinary, self._late, self._rows
            self._ordinary, self._late, self._rows = [], [], []
            chosen = kept(ordinary, self._room)
            self._room -= len(chosen)
            chosen += [(record, 1.0) for record in late]
            _note_ttft(ordinary, late)
            # Building a few takes less time than handing them to a thread; rows are packed already.
            if len(chosen) <= FEW:
                self._send(chosen, rows)
            else:
                await asyncio.to_thread(self._send, chosen, rows)
            self._metrics.traffic_rows.inc("recorded", amount=len(rows))
            self._metrics.decision_records.inc("kept", amount=len(chosen))
            self._metrics.decision_records.inc("left_out", amount=len(ordinary) + len(late) - len(chosen))

    def _follow(self) -> None:
        """Follow requests that have begun and not ended, and record the dispatches after a wait."""
        at_once, waited = self._recent.take_added()
        for record in waited:
            self._overtakes.dispatched(record)
        # A request that went to another region is followed there.
        self._open = [record for record in self._open if not record.outcome]
        self._open += [item for item in (*at_once, *waited) if not item.outcome and item.decision.engine_id]
        for record in self._open[MAX_OPEN:]:
            self._drop_traffic(record)
        del self._open[MAX_OPEN:]

    def _unreported(self, now: float, *, last: bool) -> list[DecisionRecord]:
        """Remove and return the requests in progress whose end will no longer be reported."""
        running, untold = self._open, 0
        for record in running:
            factor = UNREPORTED_FACTOR if record.first_token_s is not None else 1
            if not last and now - record.arrived_s < factor * record.pool.entry.policy.reservation_ttl_s:
                break
            untold += 1
        self._open = running[untold:]
        return running[:untold]

    def _drop_traffic(self, record: DecisionRecord) -> None:
        if self._records_traffic and record.keys is not None:
            self._metrics.traffic_rows.inc("dropped")
        record.keys = None

    def _send(self, chosen: Sequence[Kept], rows: Sequence[bytes]) -> None:
        """Send rows and the decisions to keep, in batches."""
        decisions = self._decisions(chosen)
        for part in range(max(-(-len(rows) // MAX_ROWS), -(-len(decisions) // MAX_DECISIONS))):
            name = f"{self._process}-{next(self._numbers)}"
            few = rows[part * MAX_ROWS : (part + 1) * MAX_ROWS]
            full = decisions[part * MAX_DECISIONS : (part + 1) * MAX_DECISIONS]
            self._bus.append(TOPIC, encode_batch(request_batch(name, few, full)))

    def _decisions(self, chosen: Sequence[Kept]) -> list[StoredDecision]:
        """Return the decision records of these requests."""
        snapshot = self._snapshot()
        version = snapshot.version if snapshot is not None else 0
        age_s = max(0.0, time.time() - snapshot.published_at) if snapshot is not None else None
        if version != self._recorder.version:
            self._recorder = DecisionRecorder(self._digest_key, version)
        recorder, stored = self._recorder, list[StoredDecision]()
        recorder.begin(age_s)
        for record, share in chosen:
            overtaken_s = self._overtakes.seconds(record)
            stored.append(recorder.stored(record, hit_sample(record), share=share, overtaken_s=overtaken_s))
        return stored


def _note_ttft(ordinary: Sequence[DecisionRecord], late: Sequence[DecisionRecord]) -> None:
    """Add the requests' TTFT parts to their pools' sums. If there are many, every nth request represents n."""
    every = -(-(len(ordinary) + len(late)) // MAX_SPLIT) or 1
    # The stride goes on from the first list into the second.
    for record in chain(ordinary[::every], late[-len(ordinary) % every :: every]):
        parts = split_of(record)
        if parts is not None:
            record.pool.ttft_split.note(parts, every)


def split_of(record: DecisionRecord) -> Noted | None:
    """Return the parts of a request's TTFT, None without a TTFT or after a failed attempt."""
    decision, first_token_s, arrived_s = record.decision, record.first_token_s, record.arrived_s
    pair = decision.pair
    if first_token_s is None or not decision.engine_id or len(record.attempts) > (1 if pair is None else 2):
        return None
    ttft_s = first_token_s - arrived_s
    # A dispatch at once waited for no engine, but it may have waited for a gateway that was late itself.
    queue_s = decision.decided_s - arrived_s
    queue_s = max(queue_s, decision.queued_s)
    if queue_s > ttft_s:
        queue_s = ttft_s
    elif queue_s < 0.0:
        queue_s = 0.0
    rest_s = ttft_s - queue_s
    if pair is None or record.handed_over_s is None:
        return decision.engine_id, queue_s, 0.0, rest_s, first_token_s
    transfer_s = min(max(0.0, first_token_s - record.handed_over_s), rest_s)
    return decision.engine_id, queue_s, transfer_s, rest_s - transfer_s, first_token_s


def kept(ended: Sequence[DecisionRecord], at_most: float) -> list[Kept]:
    """Return at most `at_most` of these records, evenly spread and in order."""
    wanted = min(len(ended), int(at_most))
    if wanted == len(ended):
        return [(record, 1.0) for record in ended]
    share = wanted / len(ended)
    # The middle of each stretch represents the stretch.
    return [(ended[ceil((number + 0.5) / share) - 1], share) for number in range(wanted)]
