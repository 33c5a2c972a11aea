"""The files of recordings that are kept: one gzipped trace each, written whole or not at all."""

from __future__ import annotations

import gzip
import os
import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from controlplane.recordings.recorded_row import RecordedRow
from controlplane.recordings.statistics import RecordingStatistics, StatisticsCounter

MAX_ROWS = 200_000
MAX_PLAIN_BYTES = 128 << 20
"""Of one recording, unpacked."""
LEFT_OVER_S = 3600.0
"""Files without a recording are deleted when they are older than this."""
_KEY = re.compile(r"[0-9a-f]{16}")

_encode = msgspec.json.Encoder().encode


class TooMuchTrafficError(ValueError):
    """The recording would be over a limit; the message says which, and what to do."""


class RecordingGoneError(LookupError):
    """The recording's file is not on this machine."""


class Written(msgspec.Struct, frozen=True):
    """A recording's file: its key, how many rows, how large, and what is in it."""

    key: str
    rows: int
    file_bytes: int
    statistics: RecordingStatistics


class RecordingShelf:
    """Recordings in one directory, by key."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def path(self, key: str) -> Path:
        """Return where a recording lies; raises RecordingGoneError where it does not."""
        path = self._place(key)
        if not path.is_file():
            raise RecordingGoneError(
                f"The file of this recording is not in {self._directory}; another host may keep it."
            )
        return path

    def write(self, rows: Iterable[RecordedRow]) -> Written:
        """Store the rows in the order of their times; raises TooMuchTrafficError, OSError."""
        counter = StatisticsCounter()
        lines = sorted(_lines(rows, counter))
        key = secrets.token_hex(8)
        with self._appears(key) as path, gzip.GzipFile(path, "wb", 6, mtime=0) as file:
            for _, _, line in lines:
                file.write(line)
        return Written(key, counter.rows, self._place(key).stat().st_size, counter.statistics())

    def drop(self, key: str) -> None:
        """Delete a recording's file; one that is gone already is no error."""
        self._place(key).unlink(missing_ok=True)

    def sweep(self, known: set[str], now: float) -> int:
        """Delete files that belong to no recording (the process was killed before its row was stored)."""
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

    def _place(self, key: str) -> Path:
        if not _KEY.fullmatch(key):
            raise RecordingGoneError(f"{key!r} is no recording's key")
        return self._directory / f"{key}.jsonl.gz"

    @contextmanager
    def _appears(self, key: str) -> Iterator[Path]:
        """Give a path to write to, which gets its name when all is on disk."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = self._directory / f"{key}.part"
        try:
            part.touch(mode=0o600)
            yield part
            with part.open("rb") as file:
                os.fsync(file.fileno())
            part.rename(self._place(key))
        finally:
            part.unlink(missing_ok=True)


def _lines(rows: Iterable[RecordedRow], counter: StatisticsCounter) -> Iterator[tuple[float, int, bytes]]:
    plain_bytes = 0
    for row in rows:
        line = _encode(row) + b"\n"
        plain_bytes += len(line)
        if counter.rows >= MAX_ROWS:
            raise TooMuchTrafficError(f"These are more than {MAX_ROWS:,} requests; take a shorter window.")
        if plain_bytes > MAX_PLAIN_BYTES:
            raise TooMuchTrafficError(f"These are more than {MAX_PLAIN_BYTES >> 20} MiB; take a shorter window.")
        counter.add(row)
        yield row.timestamp, counter.rows, line
