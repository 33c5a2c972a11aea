"""Stores request batches as segments, and reads one decision or the traffic of a time span.

A batch's segments and index rows are written in one transaction, and a row is deleted with its segment. Therefore
readers never see an incomplete batch.
"""

from __future__ import annotations

import logging
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Max, Min

from controlplane.fleet.model_services import add_provider_usage
from controlplane.request_log.hindsight import Hindsight
from controlplane.request_log.models.decision_index import DecisionIndex
from controlplane.request_log.models.recording import Recording
from controlplane.request_log.models.segment import Retention, Segment
from controlplane.request_log.store.merged_batches import merged_among
from gateway.contracts.request_batch import MAX_BYTES, decode_batch, decode_decisions, decode_rows, encode_decisions
from gateway.contracts.stored_decision import StoredDecision
from gateway.contracts.traffic_row import TrafficRow
from gateway.contracts.wire import UnreadableMessageError

logger = logging.getLogger(__name__)

ROW_BYTES = 400
"""Size of an index row with its index entries, counted against the budget."""
SEGMENT_BYTES = 200
"""Size of a segment without its data, counted against the budget."""
APART_S = 900.0
"""Maximum time between arrival and storage that searches consider. Longer requests, and gateways whose clock differs by
more, may be missed.
"""
MERGED_MS = 60_000
"""Small segments within this time are merged. The result has the time of the first segment."""
READ_AT_ONCE = 16
"""Number of traffic segments in memory at the same time."""
_LEVEL = 3


class RecordGoneError(LookupError):
    """The record is no longer readable. The message explains why."""


@dataclass(frozen=True, slots=True)
class StoredCounts:
    """Numbers of new rows."""

    requests: int = 0
    """Number of requests whose traffic was recorded."""
    decisions: int = 0


class _Packed(NamedTuple):
    segment: Segment
    requests: int = 0
    decisions: Sequence[StoredDecision] = ()


def store(values: Sequence[bytes], hindsight: Hindsight | None = None) -> StoredCounts:
    """Store the encoded request batches that are not stored yet. Unreadable batches are logged and skipped.

    `hindsight` judges the decisions, and must have judged the earlier ones. Raises DatabaseError if nothing could be
    stored.
    """
    packed_segments = _packed(values, hindsight or Hindsight())
    packed = {(item.segment.batch, item.segment.retention): item for item in packed_segments}
    with transaction.atomic():
        names = {name for name, _ in packed}
        # Merged segments have lost their batches' names.
        known = set(Segment.objects.filter(batch__in=names).values_list("batch", flat=True)) | merged_among(names)
        fresh = [item_ for (name, _), item_ in packed.items() if name not in known]
        Segment.objects.bulk_create([item.segment for item in fresh])
        add_provider_usage(one for item in fresh for one in item.decisions)
        insert_rows([row_of(one, item.segment.pk, n) for item in fresh for n, one in enumerate(item.decisions)])
    return StoredCounts(sum(item.requests for item in fresh), sum(len(item.decisions) for item in fresh))


def read_decision(row: DecisionIndex) -> StoredDecision:
    """Return the record of a row. Raises RecordGoneError."""
    data = Segment.objects.filter(pk=row.segment_id).values_list("data", flat=True).first()
    if data is None:
        raise RecordGoneError("it was dropped to stay within the store's budget")
    try:
        return unpacked_decisions(bytes(data))[row.position]
    except (UnreadableMessageError, IndexError) as error:
        raise RecordGoneError(f"it cannot be read: {error}") from error


def packed_decisions(decisions: Sequence[StoredDecision]) -> bytes:
    """Encode these decisions as a segment's data."""
    return zlib.compress(encode_decisions(decisions), _LEVEL)


def unpacked_decisions(data: bytes) -> list[StoredDecision]:
    """Decode the decisions in a segment's data. Raises UnreadableMessageError."""
    unpacker = zlib.decompressobj()
    try:
        # A damaged segment may unpack to gigabytes.
        unpacked = unpacker.decompress(data, MAX_BYTES)
    except zlib.error as error:
        raise UnreadableMessageError(f"not packed decisions: {error}") from error
    if not unpacker.eof:
        raise UnreadableMessageError("packed decisions that are cut off, or too many")
    return decode_decisions(unpacked)


def recorded_traffic(begin: float, end: float, *, segments: int = 1, rows: int = 1) -> Iterator[TrafficRow]:
    """Yield the rows that arrived in [begin, end), in unix seconds, in stored order.

    One of every `segments` consecutive segments is read, and one of every `rows` rows in it. Segments are chosen at
    random, because gateways may store in turn.
    """
    listed = Segment.objects.filter(
        retention=Retention.TRAFFIC,
        merged_at_ms=None,
        at_ms__gte=int((begin - APART_S) * 1000) - MERGED_MS,
        at_ms__lte=int((end + APART_S) * 1000),
    )
    keys, random = list(listed.order_by("at_ms", "pk").values_list("pk", flat=True)), Random(0)
    drawn = [start + random.randrange(segments) for start in range(0, len(keys), segments)]
    keys = [keys[index] for index in drawn if index < len(keys)]
    # A few at a time: not all data at once, and no cursor that stays open, which a pooler may not allow.
    for start in range(0, len(keys), READ_AT_ONCE):
        part = Segment.objects.filter(pk__in=keys[start : start + READ_AT_ONCE]).order_by("at_ms", "pk")
        for name, data in part.values_list("batch", "data"):
            try:
                sampled = decode_rows(bytes(data))[random.randrange(rows) :: rows]
                yield from (row for row in sampled if begin <= row.arrived_at < end)
            except UnreadableMessageError as error:
                logger.warning("recorded traffic cannot be read", extra={"batch": name, "reason": str(error)})


def recorded_span() -> tuple[float, float] | None:
    """Return the time span of recorded traffic in unix seconds; None: no traffic."""
    recorded = Segment.objects.filter(retention=Retention.TRAFFIC, merged_at_ms=None)
    span = recorded.aggregate(since=Min("at_ms"), until=Max("at_ms"))
    return None if span["since"] is None else (span["since"] / 1000, span["until"] / 1000)


def kept_segment(name: str, data: bytes, recording: Recording) -> Segment:
    """Return a segment with part of a recording's trace."""
    now_ms = int(time.time() * 1000)
    return new_segment(Retention.KEPT, name, now_ms, data, recording=recording)


def _packed(values: Sequence[bytes], hindsight: Hindsight) -> Iterator[_Packed]:
    now_ms = int(time.time() * 1000)
    for value in values:
        try:
            batch = decode_batch(value)
            decisions = [hindsight.judged(decode_decision) for decode_decision in decode_decisions(batch.decisions)]
        except UnreadableMessageError as error:
            logger.warning("requests cannot be read", extra={"reason": str(error)})
            continue
        if batch.traffic and settings.RECORDING_BYTES:
            # Stored as received: packing would save two fifths of the space and cost more time than all else here.
            yield _Packed(new_segment(Retention.TRAFFIC, batch.name, now_ms, batch.traffic), requests=batch.requests)
        if decisions:
            data = packed_decisions(decisions)
            segment = new_segment(Retention.DECISIONS, batch.name, now_ms, data, rows=len(decisions))
            yield _Packed(segment, decisions=decisions)


def new_segment(
    retention: Retention, batch: str, at_ms: int, data: bytes, *, rows: int = 0, recording: Recording | None = None
) -> Segment:
    """Return a segment with the size that counts against the budget. `rows` is the number of its index rows."""
    size = len(data) + SEGMENT_BYTES + rows * ROW_BYTES
    return Segment(retention=retention, batch=batch, at_ms=at_ms, size=size, recording=recording, data=data)


_COLUMNS = (
    "decision_id", "at_ms", "pool", "engine", "tenant", "session", "reason", "policy_version", "arm", "outcome",
    "error", "late", "ttft_ms", "queued_ms", "prompt_tokens", "predicted_tokens", "reported_tokens", "mismatch",
    "regret_ms", "regret_cause", "share", "segment", "position", "client_request_id",
    "ended_ms",
)  # fmt: skip
# PostgreSQL rejects a larger integer, and the whole batch with it; SQLite stores it.
_MOST = 2**31 - 1


def row_of(stored: StoredDecision, segment: int, position: int) -> tuple[Any, ...]:
    """Return the values of a row, in the order of _COLUMNS."""
    decision, regret = stored.decision, stored.regret
    return (
        # Cut to the columns: PostgreSQL rejects a longer text, and the whole batch with it; SQLite stores it.
        decision.decision_id[:64],
        int(stored.arrived_at * 1000),
        decision.pool_id[:64],
        decision.engine_id[:64],
        stored.tenant_id[:64],
        stored.session[:16],
        decision.reason[:32],
        decision.policy_version,
        decision.arm[:16],
        stored.outcome[:16],
        stored.error[:64],
        stored.late,
        _ms(stored.first_token_after_s),
        _ms(stored.dispatched_after_s),
        min(decision.prompt_tokens, _MOST),
        min(stored.believed_tokens, _MOST),
        None if stored.cached_tokens is None else min(stored.cached_tokens, _MOST),
        stored.mismatch[:16],
        None if regret is None else _ms(regret.seconds),
        "" if regret is None else regret.cause,
        stored.share,
        segment,
        position,
        stored.client_request_id[:128],
        None if stored.finished_after_s is None else int((stored.arrived_at + stored.finished_after_s) * 1000),
    )


def insert_rows(rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert the rows, and skip decisions that are already stored.

    Uses plain SQL, because creating model instances would take several times as long as the database.
    """
    meta, quote = DecisionIndex._meta, connection.ops.quote_name
    names = ", ".join(quote(meta.get_field(name).column) for name in _COLUMNS)
    holes = ", ".join(["%s"] * len(_COLUMNS))
    unique = quote("decision_id")
    with connection.cursor() as cursor:
        cursor.executemany(
            f"INSERT INTO {quote(meta.db_table)} ({names}) VALUES ({holes}) ON CONFLICT ({unique}) DO NOTHING",  # noqa: S608
            list(rows),
        )


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else min(round(seconds * 1000), _MOST)
