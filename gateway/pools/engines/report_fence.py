"""Drops reports of a prober whose lease has passed to another process."""

from __future__ import annotations

from gateway.contracts.engine_report import EngineReport

MAX_SHARDS = 4096
FORGOTTEN_S = 30.0
"""A holder without a report for this long is removed, because a new database starts with low tokens again."""


class ReportFence:
    """The highest fencing token of each shard, and its time. Mutable: `_highest`, at most MAX_SHARDS.

    A prober that was suspended can send old readings before it learns that its lease is gone; its token is lower than
    its successor's. Engines that move between shards cause no problem: tokens of different shards are never compared.
    """

    def __init__(self) -> None:
        self._highest: dict[int, tuple[int, float]] = {}

    def admits(self, report: EngineReport) -> bool:
        """Return whether the report is from the shard's newest known holder."""
        highest, received_at = self._highest.get(report.shard, (0, 0.0))
        if report.fence < highest and report.at - received_at <= FORGOTTEN_S:
            return False
        if report.shard in self._highest or len(self._highest) < MAX_SHARDS:
            self._highest[report.shard] = (report.fence, report.at)
        return True
