"""Puts decisions into segments and index, and keeps both within the budget.

A frame is written first, its rows second: a row never points at nothing, and frames whose rows were lost (the
process was killed in between, the database was away) get them at the next start.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from django.db import transaction

from controlplane.decision_store.index_rows import insert_rows, row_of, stored_among
from controlplane.decision_store.segment import frames
from controlplane.decision_store.shelf import SegmentShelf
from controlplane.models import DecisionIndex
from gateway.contracts.stored_decision import StoredDecision

logger = logging.getLogger(__name__)

FRAME_DECISIONS = 64
"""Decisions per frame: enough to compress well, few enough to unpack for one of them."""
ROW_BYTES = 400
"""What one row and its index entries take in the database, counted against the budget."""
DELETED_AT_ONCE = 2000
"""Rows deleted in one transaction, so that nobody waits long for the database."""
RECOVERED_SEGMENTS = 2
"""Newest segments that are looked through for frames without rows."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What the store takes, bytes; `rows` of the index are counted at ROW_BYTES."""

    segments: int
    segment_bytes: int
    rows: int

    @property
    def total_bytes(self) -> int:
        """Bytes counted against the budget."""
        return self.segment_bytes + self.rows * ROW_BYTES


class DecisionKeeper:
    """The writing side of the store. One at a time: its callers hold the lease of the job."""

    def __init__(self, shelf: SegmentShelf, budget_bytes: int) -> None:
        self.shelf = shelf
        self._budget_bytes = budget_bytes

    def store(self, decisions: Sequence[StoredDecision]) -> int:
        """Keep the decisions that are not there yet and return how many; raises OSError and DatabaseError."""
        fresh = _unknown(decisions)
        for start in range(0, len(fresh), FRAME_DECISIONS):
            part = fresh[start : start + FRAME_DECISIONS]
            segment, offset = self.shelf.append(part)
            with transaction.atomic():
                insert_rows([row_of(each, segment, offset, place) for place, each in enumerate(part)])
        return len(fresh)

    def recover(self) -> int:
        """Index what lies in the newest segments without rows, and return how many decisions that were."""
        found = 0
        for name in self.shelf.names()[-RECOVERED_SEGMENTS:]:
            for offset, decisions in frames(self.shelf.path(name)):
                missing = {each.decision.decision_id for each in _unknown(decisions)}
                rows = [
                    row_of(each, name, offset, place)
                    for place, each in enumerate(decisions)
                    if each.decision.decision_id in missing
                ]
                with transaction.atomic():
                    insert_rows(rows)
                found += len(rows)
        if found:
            logger.info("decision records without index rows were found", extra={"count": found})
        return found

    def usage(self) -> Usage:
        """Return what the store takes now."""
        sizes = self.shelf.sizes()
        return Usage(len(sizes), sum(sizes.values()), DecisionIndex.objects.count())

    def shrink(self) -> int:
        """Drop the oldest segments, with their rows, until the budget holds; returns how many were dropped."""
        dropped = 0
        names = self.shelf.names()
        usage = self.usage()
        total_bytes, sizes = usage.total_bytes, self.shelf.sizes()
        while total_bytes > self._budget_bytes and names:
            name = names.pop(0)
            rows = _delete_rows(name)
            self.shelf.drop(name)
            total_bytes -= sizes.get(name, 0) + rows * ROW_BYTES
            dropped += 1
        return dropped


def _unknown(decisions: Sequence[StoredDecision]) -> list[StoredDecision]:
    """Return the decisions that have no row, each once."""
    by_id = {each.decision.decision_id: each for each in decisions}
    for name in stored_among(list(by_id)):
        del by_id[name]
    return list(by_id.values())


def _delete_rows(segment: str) -> int:
    deleted = 0
    while True:
        keys = list(DecisionIndex.objects.filter(segment=segment).values_list("pk", flat=True)[:DELETED_AT_ONCE])
        if not keys:
            return deleted
        deleted += DecisionIndex.objects.filter(pk__in=keys).delete()[0]
