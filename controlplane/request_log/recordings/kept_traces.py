"""Stored traces of recordings: gzip-compressed, in segments of the request log, with copies as files."""

from __future__ import annotations

import gzip
import io
import os
import re
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from django.conf import settings

from controlplane.request_log.models.recording import Recording
from controlplane.request_log.models.segment import Segment
from controlplane.request_log.recordings.recorded_row import RecordedRow
from controlplane.request_log.recordings.statistics import RecordingStatistics, StatisticsCounter
from controlplane.request_log.store.segments import kept_segment

MAX_ROWS = 200_000
MAX_PLAIN_BYTES = 128 << 20
"""Maximum uncompressed size of one recording."""
LEFT_OVER_S = 3600.0
"""Age at which copies without a recording are deleted."""
PART_BYTES = 4 << 20
"""Size of the segments of a trace, so that no write blocks the database for long."""
_KEY = re.compile(r"[0-9a-f]{16}")

_encode = msgspec.json.Encoder().encode


class TooMuchTrafficError(ValueError):
    """The recording would exceed a limit. The message states the limit and the fix."""


class RecordingGoneError(LookupError):
    """The recording's trace is no longer stored."""


@dataclass(frozen=True, slots=True)
class Written:
    """A trace that belongs to no recording yet: its rows, compressed form, and content."""

    rows: int
    packed: bytes = field(repr=False)
    statistics: RecordingStatistics


def written(rows: Iterable[RecordedRow]) -> Written:
    """Return the trace of the rows, ordered by time. Raises TooMuchTrafficError."""
    counter = StatisticsCounter()
    lines = sorted(_lines(rows, counter))
    packed = io.BytesIO()
    # Without a name and a time in the header, equal rows give equal bytes.
    with gzip.GzipFile("", "wb", 6, packed, mtime=0) as file:
        for _, _, line in lines:
            file.write(line)
    return Written(counter.rows, packed.getvalue(), counter.statistics())


class RecordingStore:
    """Traces in the request log, with copies in a directory of this machine for programs that read files."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def keep(self, recording: Recording, trace: Written) -> None:
        """Store the trace of a new recording, in the same transaction."""
        parts = [trace.packed[start : start + PART_BYTES] for start in range(0, len(trace.packed), PART_BYTES)]
        Segment.objects.bulk_create(
            kept_segment(f"{recording.key}-{number}", part, recording) for number, part in enumerate(parts)
        )

    def packed(self, key: str) -> bytes:
        """Return the gzip-compressed trace. Raises RecordingGoneError."""
        parts = Segment.objects.filter(recording__key=key).order_by("pk").values_list("data", flat=True)
        if not (packed := b"".join(bytes(part) for part in parts)):
            raise RecordingGoneError("The recording was deleted, and its trace with it.")
        return packed

    def path(self, key: str) -> Path:
        """Return the path of a copy of the trace, and create it if necessary. Raises RecordingGoneError."""
        path = self._path(key)
        if not path.is_file():
            self._copy(self.packed(key), path)
        return path

    def drop_copy(self, key: str) -> None:
        """Delete this machine's copy. Sweeps delete the copies on other machines."""
        self._path(key).unlink(missing_ok=True)

    def sweep(self, known: set[str], now: float) -> int:
        """Delete copies of deleted recordings and partial copies of killed processes. Return how many."""
        swept = 0
        if not self._directory.is_dir():
            return 0
        for path in self._directory.iterdir():
            key = path.name.partition(".")[0]
            is_known = key in known and path.suffix != ".part"
            if _KEY.fullmatch(key) and not is_known and path.stat().st_mtime < now - LEFT_OVER_S:
                path.unlink(missing_ok=True)
                swept += 1
        return swept

    def _path(self, key: str) -> Path:
        if not _KEY.fullmatch(key):
            raise RecordingGoneError(f"{key!r} is no recording's key")
        return self._directory / f"{key}.jsonl.gz"

    def _copy(self, packed: bytes, path: Path) -> None:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = path.with_name(f"{path.name.partition('.')[0]}.{os.getpid()}-{threading.get_ident()}.part")
        part.touch(mode=0o600)
        try:
            part.write_bytes(packed)
            # Renamed once it is whole, so that no reader opens a part of it.
            part.rename(path)
        finally:
            part.unlink(missing_ok=True)


def recording_store() -> RecordingStore:
    """Return the RecordingStore with copies in the state directory."""
    return RecordingStore(settings.STATE_DIR / "recordings")


def _lines(rows: Iterable[RecordedRow], counter: StatisticsCounter) -> Iterator[tuple[float, int, bytes]]:
    plain_bytes = 0
    for row in rows:
        line = _encode(row) + b"\n"
        plain_bytes += len(line)
        if counter.rows >= MAX_ROWS:
            raise TooMuchTrafficError(f"More than {MAX_ROWS:,} requests; choose a shorter window.")
        if plain_bytes > MAX_PLAIN_BYTES:
            raise TooMuchTrafficError(f"More than {MAX_PLAIN_BYTES >> 20} MiB; choose a shorter window.")
        counter.add(row)
        # Rows of one moment are sorted by their number, which keeps their order.
        yield row.timestamp, counter.rows, line
