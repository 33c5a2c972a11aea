"""Merges small segments, so that a quiet fleet does not add a row per second and retention class.

Each merge is one atomic transaction: the new segment, its index rows, the mark on the old segments, and their batches'
names. The old segments are kept for a while, for readers that have already listed them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from django.db import transaction
from django.db.models import F

from controlplane.request_log.models.decision_index import DecisionIndex
from controlplane.request_log.models.segment import Retention, Segment
from controlplane.request_log.store.merged_batches import note_merged
from controlplane.request_log.store.segments import (
    MERGED_MS,
    new_segment,
    packed_decisions,
    unpacked_decisions,
)
from gateway.contracts.request_batch import joined_rows
from gateway.contracts.wire import UnreadableMessageError

logger = logging.getLogger(__name__)

MERGED_BYTES = 128 << 10
"""Maximum size of a merged segment, including index rows. Reading one decision decompresses its whole segment."""
LISTED_AT_ONCE = 512
"""Maximum number of segments that one call examines or merges."""
READERS_MS = 300_000
"""Time after which a merged segment is deleted."""

Listed = tuple[int, int, int]
"""Key, time, and size of a segment."""


def merge_small(retention: Retention, since_ms: int, now_ms: int) -> int:
    """Merge small segments stored at `since_ms` or later. Return the start time for the next call."""
    segments = Segment.objects.filter(retention=retention, merged_at_ms=None, at_ms__gte=since_ms)
    listed = list(segments.order_by("at_ms", "pk").values_list("pk", "at_ms", "size")[:LISTED_AT_ONCE])
    *complete, last = _groups(listed) or [[]]
    if not complete and len(listed) == LISTED_AT_ONCE:
        # As many at one moment as one call examines: the segments after them would never be reached.
        complete, last = [last], [(0, last[-1][1] + 1, 0)]
    # The last group may still grow, so the next call starts with it.
    for group in complete:
        if len(group) > 1:
            _merge(retention, [pk for pk, _, _ in group], now_ms)
    return last[0][1] if last else since_ms


def drop_merged(now_ms: int) -> int:
    """Delete segments that were merged longer than READERS_MS ago. Return how many."""
    gone = Segment.objects.filter(merged_at_ms__lt=now_ms - READERS_MS).order_by("merged_at_ms")
    keys = list(gone.values_list("pk", flat=True)[:LISTED_AT_ONCE])
    return Segment.objects.filter(pk__in=keys).only("pk").delete()[0] if keys else 0


def _groups(listed: Sequence[Listed]) -> list[list[Listed]]:
    """Group the segments for merging. The last group may still grow."""
    groups: list[list[Listed]] = []
    size = 0
    for item in listed:
        size += item[2]
        if not groups or size > MERGED_BYTES or item[1] >= groups[-1][0][1] + MERGED_MS:
            groups.append([])
            size = item[2]
        groups[-1].append(item)
    return groups


def _merge(retention: Retention, keys: Sequence[int], now_ms: int) -> None:
    with transaction.atomic():
        if Segment.objects.filter(pk__in=keys, merged_at_ms=None).update(merged_at_ms=now_ms) != len(keys):
            # Another process has merged some of them, or retention has dropped some.
            transaction.set_rollback(True)
            return
        parts = list(Segment.objects.filter(pk__in=keys).order_by("at_ms", "pk"))
        try:
            merged, counts = _joined(retention, parts)
        except UnreadableMessageError as error:
            logger.warning("segments cannot be merged", extra={"batch": parts[0].batch, "reason": str(error)})
            transaction.set_rollback(True)
            return
        # The old segments stay, marked, for readers that listed them before.
        merged.save(force_insert=True)
        offset = 0
        for part, count in zip(parts, counts, strict=True):
            DecisionIndex.objects.filter(segment=part).update(segment=merged, position=F("position") + offset)
            offset += count
        note_merged((part.batch for part in parts), now_ms)


def _joined(retention: Retention, parts: Sequence[Segment]) -> tuple[Segment, list[int]]:
    """Return one segment with the content of these, and the number of index rows of each."""
    name, at_ms = f"+{parts[0].batch}"[:64], parts[0].at_ms
    if retention == Retention.TRAFFIC:
        return new_segment(retention, name, at_ms, joined_rows(bytes(part.data) for part in parts)), [0] * len(parts)
    lists = [unpacked_decisions(bytes(part.data)) for part in parts]
    decisions = [item for one in lists for item in one]
    return new_segment(retention, name, at_ms, packed_decisions(decisions), rows=len(decisions)), list(map(len, lists))
