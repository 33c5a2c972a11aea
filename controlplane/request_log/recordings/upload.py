"""Validates an uploaded trace line by line, and reports all errors with their line numbers."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from typing import IO

import msgspec

from controlplane.platform.field_problems import FieldProblem
from controlplane.request_log.recordings.kept_traces import MAX_PLAIN_BYTES, MAX_ROWS
from controlplane.request_log.recordings.recorded_row import RecordedRow, decode_recorded
from routing.values.counted import count

MAX_UPLOAD_BYTES = 16 << 20
"""Maximum size as sent, with or without gzip."""
MAX_PROBLEMS = 100
MAX_LINE_BYTES = 1 << 20
MAX_LINES = 2 * MAX_ROWS
"""Maximum number of lines, including blank and invalid lines."""
MAX_MEMBERS = 10_000
MAX_BLOCKS = 200_000
MAX_INPUT = 100_000_000
MAX_SPAN_MS = 31 * 86_400_000.0
OUTCOMES = frozenset({"", "completed", "failed", "rejected", "cancelled", "client_error", "unanswered"})
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_MEMBER = b"\x1f\x8b\x08"


class BadTraceError(ValueError):
    """The upload is not a valid trace. `problems` lists lines with their errors, at most MAX_PROBLEMS."""

    def __init__(self, problems: list[FieldProblem], wrong_lines: int) -> None:
        lines = count(wrong_lines, "line")
        note = f"; the first {len(problems)} are listed" if wrong_lines > len(problems) else ""
        super().__init__(f"{lines} unreadable{note}. Nothing was stored.")
        self.problems = problems


def checked_rows(file: IO[bytes]) -> Iterator[RecordedRow]:
    """Validate a whole trace in Mooncake's format, with or without gzip, and return its rows.

    Raises BadTraceError with all problems. The file is read twice, so that its rows are never all in memory.
    """
    packed = file.read(MAX_UPLOAD_BYTES + 1)
    checker = _Checker()
    try:
        if len(packed) > MAX_UPLOAD_BYTES:
            raise _UnreadableError(
                f"The file is over {MAX_UPLOAD_BYTES >> 20} MiB; compress it with gzip or upload a part."
            )
        for number, line in enumerate(_lines(packed), start=1):
            checker.take(number, line)
            if checker.rows > MAX_ROWS:
                raise _UnreadableError(f"There are more than {MAX_ROWS:,} requests; upload a part of them.")
    except _UnreadableError as error:
        checker.reject("", str(error))
    if not checker.rows and not checker.wrong_lines:
        checker.reject("", "The file has no requests; send one JSON object per line.")
    if checker.wrong_lines:
        raise BadTraceError(checker.problems, checker.wrong_lines)
    return (decode_recorded(line) for line in _lines(packed) if line.strip())


class _Checker:
    """Counts rows and problems. Everything is mutable."""

    def __init__(self) -> None:
        self.rows = 0
        self.problems: list[FieldProblem] = []
        self.wrong_lines = 0

    def take(self, number: int, line: bytes) -> None:
        if not line.strip():
            return
        if len(line) > MAX_LINE_BYTES:
            self.reject(f"line {number}", f"Is longer than {MAX_LINE_BYTES:,} bytes.")
            return
        try:
            row = decode_recorded(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self.reject(f"line {number}", f"{_sentence(str(error))}")
            return
        wrong = _wrong(row)
        if wrong:
            self.reject(f"line {number}", wrong)
        else:
            self.rows += 1

    def reject(self, path: str, message: str) -> None:
        self.wrong_lines += 1
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(FieldProblem(path, message))


class _UnreadableError(ValueError):
    """The bytes are unreadable."""


def _wrong(row: RecordedRow) -> str:
    """Return the problem of a row whose types are correct; empty: no problem."""
    times = (row.ttft_s or 0.0, row.total_s or 0.0)
    rules = (
        (
            bool(row.hash_ids) and not -(2**63) <= min(row.hash_ids) <= max(row.hash_ids) < 2**64,
            "A hash id has more than 64 bits - at `$.hash_ids`.",
        ),
        (len(row.hash_ids) > MAX_BLOCKS, f"There are over {MAX_BLOCKS:,} ids - at `$.hash_ids`."),
        (row.input_length > MAX_INPUT, f"The prompt is over {MAX_INPUT:,} tokens - at `$.input_length`."),
        (row.output_length > MAX_INPUT, f"The answer is over {MAX_INPUT:,} tokens - at `$.output_length`."),
        (row.timestamp > MAX_SPAN_MS, "It is over 31 days; timestamps are milliseconds from 0 - at `$.timestamp`."),
        (row.outcome not in OUTCOMES, f"Must be one of {', '.join(sorted(OUTCOMES - {''}))} - at `$.outcome`."),
        (not all(0 <= time < 86_400 for time in times), "A time is not from 0 to 86,400 s - at `$.ttft_s`."),
        (min(row.cached_tokens or 0, row.engines, row.policy_version) < 0, "A count is below 0."),
    )
    return next((message for wrong, message in rules if wrong), "")


def _lines(packed: bytes) -> Iterator[bytes]:
    """Yield the lines. A line over MAX_LINE_BYTES is truncated just above the limit.

    Raises _UnreadableError at the first exceeded limit: lines (including blank ones), uncompressed bytes, or gzip
    members.
    """
    raw = io.BytesIO(packed)
    plain: IO[bytes] = io.BufferedReader(gzip.GzipFile(fileobj=raw)) if packed.startswith(_GZIP_MAGIC) else raw
    size_bytes, lines, goes_on = 0, 0, False
    try:
        # Empty members unpack to nothing, so that no limit below ends a file of millions of them.
        if packed.count(_GZIP_MEMBER) > MAX_MEMBERS:
            raise _UnreadableError("It has too many gzip members; compress it again in one piece.")
        while piece := plain.readline(MAX_LINE_BYTES + 1):
            size_bytes += len(piece)
            if size_bytes > MAX_PLAIN_BYTES:
                raise _UnreadableError(f"Decompressed it is over {MAX_PLAIN_BYTES >> 20} MiB; send a part.")
            if not goes_on:
                lines += 1
                if lines > MAX_LINES:
                    raise _UnreadableError(f"There are more than {MAX_LINES:,} lines; upload a part of them.")
                yield piece
            goes_on = not piece.endswith(b"\n")
    except (OSError, EOFError, zlib.error) as error:
        raise _UnreadableError(f"It cannot be decompressed ({error}); compress it again with gzip.") from error


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."
