"""The ring of recent traffic: batches of rows as the gateways sent them in segment files, bounded in bytes and in age.

Every request passes here, so a row is neither read nor packed on its way: packing would save two fifths of the space
and cost more time than all the rest of recording. Names of segments hold the unix milliseconds of their beginning and
the writer's process id.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from controlplane.frames import framed, payloads
from gateway.contracts.traffic_row import TrafficRow, decode_rows
from gateway.contracts.wire import UnreadableMessageError

logger = logging.getLogger(__name__)

SEGMENT_S = 600.0
"""A segment takes rows this long; what is dropped at once for its age is so much."""
SEGMENTS = 32
"""Into about so many segments the budget is divided."""
LEAST_SEGMENT_BYTES = 64 << 10
LATEST_END_S = 900.0
"""Rows are written when their request ends; one that ended later than this after its arrival may be overlooked."""
_NAME = re.compile(r"[0-9a-f]{12}-[0-9]{1,10}\.rows")


class TrafficRing:
    """Segments in one directory: one writer of this process appends, all read, the oldest leave.

    Mutable state: the segment that is being written, if any.
    """

    def __init__(self, directory: Path, budget_bytes: int, max_age_s: float) -> None:
        self._directory = directory
        self._budget_bytes = budget_bytes
        self._max_age_s = max_age_s
        self._segment_bytes = max(budget_bytes // SEGMENTS, LEAST_SEGMENT_BYTES)
        self._handle = -1
        self._size = 0
        self._begun_s = 0.0

    def append(self, batches: Sequence[bytes]) -> None:
        """Write batches of traffic rows in one go; raises OSError, and then none of them counts.

        What is written survives the end of this process; the disk has it when the segment is full.
        """
        member = b"".join([framed(each) for each in batches])
        now = time.time()
        if self._handle >= 0 and (self._size + len(member) > self._segment_bytes or now - self._begun_s > SEGMENT_S):
            self.close()
        if self._handle < 0:
            self._begin(now)
        try:
            written = os.write(self._handle, member)
        except OSError:
            self.close()
            raise
        if written < len(member):
            # What follows a torn frame could not be found again.
            self.close()
            raise OSError("the disk took only a part of what was recorded")
        self._size += written

    def close(self) -> None:
        """End the segment that is being written."""
        if self._handle >= 0:
            handle, self._handle = self._handle, -1
            try:
                os.fsync(handle)
            finally:
                os.close(handle)

    def names(self) -> list[str]:
        """Return the names of all segments, the oldest first."""
        if not self._directory.is_dir():
            return []
        return sorted(each.name for each in self._directory.iterdir() if _NAME.fullmatch(each.name))

    def size_bytes(self) -> int:
        """Return what all segments take."""
        return sum(_size(self._directory / name) for name in self.names())

    def span(self) -> tuple[float, float] | None:
        """Return since when and until when (unix seconds) traffic is recorded; None: there is nothing."""
        names = self.names()
        for newest in reversed(names):
            try:
                return _begun(names[0]), (self._directory / newest).stat().st_mtime
            except FileNotFoundError:
                continue
        return None

    def rows(self, begin: float, end: float) -> Iterator[TrafficRow]:
        """Yield the rows that arrived within [begin, end) in unix seconds, in the order in which they ended."""
        names = self.names()
        for place, name in enumerate(names):
            over = _begun(names[place + 1]) if place + 1 < len(names) else None
            # Segments of several writers overlap by the length of one.
            if (over is not None and over + SEGMENT_S < begin) or _begun(name) > end + LATEST_END_S:
                continue
            for row in segment_rows(self._directory / name):
                if begin <= row.at < end:
                    yield row

    def shrink(self, now: float) -> int:
        """Drop the oldest segments until budget and age hold, and return how many were dropped."""
        names, dropped = self.names(), 0
        sizes = {name: _size(self._directory / name) for name in names}
        total_bytes = sum(sizes.values())
        for place, name in enumerate(names[:-1]):
            is_old = _begun(names[place + 1]) + SEGMENT_S < now - self._max_age_s
            if not is_old and total_bytes <= self._budget_bytes:
                break
            (self._directory / name).unlink(missing_ok=True)
            total_bytes -= sizes[name]
            dropped += 1
        return dropped

    def _begin(self, now: float) -> None:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        moment = int(now * 1000)
        while self._handle < 0:
            path = self._directory / f"{moment:012x}-{os.getpid()}.rows"
            try:
                self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
            except FileExistsError:
                moment += 1
        self._size, self._begun_s = 0, now


def segment_rows(path: Path) -> Iterator[TrafficRow]:
    """Yield the rows of each whole batch; one that is none is passed over, and told."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        for data in payloads(file):
            try:
                yield from decode_rows(data)
            except UnreadableMessageError as error:
                logger.warning("recorded traffic cannot be read", extra={"segment": path.name, "reason": str(error)})


def _begun(name: str) -> float:
    return int(name[:12], 16) / 1000


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
