"""The directory of segment files: one writer of this process appends, all read, the oldest are dropped."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from pathlib import Path

from controlplane.decision_store.segment import HEAD, begin, frame_of, read_frame
from controlplane.frames import BadFrameError
from gateway.contracts.stored_decision import StoredDecision

LEAST_SEGMENT_BYTES = 128 << 10
MOST_SEGMENT_BYTES = 16 << 20
SEGMENTS = 32
"""Into about so many segments the budget is divided: what is dropped at once is so much of it."""
_NAME = re.compile(r"[0-9a-f]{12}-[0-9]{1,10}\.seg")


class RecordGoneError(LookupError):
    """The record cannot be read any more; the message says why."""


class SegmentShelf:
    """Segments in one directory. Mutable state: the segment that is being written, if any.

    Names sort by the time of their beginning and end with the writer's process id, so that processes that
    share a directory never write into one file.
    """

    def __init__(self, directory: Path, budget_bytes: int) -> None:
        self._directory = directory
        self._segment_bytes = min(max(budget_bytes // SEGMENTS, LEAST_SEGMENT_BYTES), MOST_SEGMENT_BYTES)
        self._handle = -1
        self._size = 0
        self.current = ""
        """Name of the segment that is being written; empty: the next append begins one."""

    def append(self, decisions: Sequence[StoredDecision]) -> tuple[str, int]:
        """Write the decisions as one frame and return (segment, offset); raises OSError, and then nothing counts.

        Written frames survive the end of this process; the disk has them when the segment is full.
        """
        frame = frame_of(decisions)
        if self._handle >= 0 and self._size + len(frame) > self._segment_bytes:
            self.close()
        if self._handle < 0:
            self._begin()
        offset = self._size
        try:
            if os.write(self._handle, frame) < len(frame):
                raise OSError("the disk took only a part of a frame")
        except OSError:
            self._take_back()
            raise
        self._size += len(frame)
        return self.current, offset

    def _take_back(self) -> None:
        """Cut a torn frame off: what follows it would be lost, and a full disk needs no new segment at each attempt."""
        try:
            os.ftruncate(self._handle, self._size)
        except OSError:
            self.close()

    def close(self) -> None:
        """End the segment that is being written."""
        if self._handle >= 0:
            handle, self._handle, self.current = self._handle, -1, ""
            try:
                os.fsync(handle)
            finally:
                os.close(handle)

    def names(self) -> list[str]:
        """Return the names of all segments, the oldest first."""
        if not self._directory.is_dir():
            return []
        return sorted(each.name for each in self._directory.iterdir() if _NAME.fullmatch(each.name))

    def sizes(self) -> dict[str, int]:
        """Return the bytes of each segment, the oldest first."""
        found = {}
        for name in self.names():
            try:
                found[name] = self.path(name).stat().st_size
            except FileNotFoundError:
                continue
        return found

    def path(self, name: str) -> Path:
        """Return where the segment lies; raises RecordGoneError for what is no segment's name."""
        if not _NAME.fullmatch(name):
            raise RecordGoneError(f"{name!r} is no segment")
        return self._directory / name

    def read(self, name: str, offset: int, place: int) -> StoredDecision:
        """Return one record; raises RecordGoneError."""
        try:
            return read_frame(self.path(name), offset)[place]
        except FileNotFoundError:
            raise RecordGoneError(
                f"segment {name} is not in {self._directory}; it was dropped, or another host keeps it"
            ) from None
        except (BadFrameError, OSError, IndexError) as error:
            raise RecordGoneError(f"segment {name} cannot be read at {offset}: {error}") from error

    def drop(self, name: str) -> None:
        """Delete a segment; one that is gone already is no error."""
        if name == self.current:
            self.close()
        self.path(name).unlink(missing_ok=True)

    def _begin(self) -> None:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        moment = int(time.time() * 1000)
        while self._handle < 0:
            name = f"{moment:012x}-{os.getpid()}.seg"
            try:
                self._handle = begin(self._directory / name)
            except FileExistsError:
                moment += 1
        self.current, self._size = name, len(HEAD)
