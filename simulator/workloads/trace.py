"""Reads and writes request traces in Mooncake's JSONL format, gzipped or not.

A row is one request: {timestamp (ms), input_length, output_length (tokens), hash_ids} with optional session_id, tenant,
priority and cache_hint, and Headway's extensions head_ids and unread. A hash id identifies the whole prefix up to and
including its block of 512 tokens. Unknown fields are ignored.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Annotated

import msgspec
from msgspec import Meta

BLOCK_TOKENS = 512
MAX_LINE_BYTES = 8 * 1024 * 1024


class TraceError(ValueError):
    """The file is not a trace; the message names the file and line."""


class TraceRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """One request of a trace."""

    timestamp: Annotated[float, Meta(ge=0)]
    """Milliseconds since the trace began."""
    input_length: Annotated[int, Meta(ge=1)]
    output_length: Annotated[int, Meta(ge=0)]
    hash_ids: tuple[int, ...]
    """If there are fewer ids than blocks, the remaining prompt is unique; surplus ids are ignored."""
    session_id: str | int | None = None
    tenant: str = ""
    priority: int = 0
    cache_hint: str | int | float | bool | None = None
    head_ids: tuple[int, ...] = ()
    """Names of the first, smaller blocks by which the recorded pool distinguishes prefixes; if empty, hash_ids are
    used.
    """
    unread: bool = False
    """The request was rejected before its prompt was read. Its length is unknown, so that it cannot be simulated."""


_decoder = msgspec.json.Decoder(TraceRow)


def read_trace(path: Path, max_rows: int | None = None) -> list[TraceRow]:
    """Return the first `max_rows` rows that can be simulated, ordered by timestamp; raise TraceError."""
    rows = list(islice((row for row in iterate_trace(path) if not row.unread), max_rows))
    if not rows:
        raise TraceError(f"{path}: the trace has no rows")
    return sorted(rows, key=lambda row: row.timestamp)


def iterate_trace(path: Path) -> Iterator[TraceRow]:
    """Yield the rows of a trace one by one without empty lines; raise TraceError with the line number."""
    for where, line in iterate_lines(path):
        yield _row(line, where)


def iterate_lines(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield (file and line number, line) for each line that is not empty; raise TraceError."""
    try:
        with _open(path) as file:
            for number, line in enumerate(_lines(file, path), start=1):
                if line.strip():
                    yield f"{path}:{number}", line
    except FileNotFoundError as error:
        raise TraceError(f"{path}: no such file") from error
    # A gzip file that is cut or damaged raises the latter two.
    except (OSError, EOFError, zlib.error) as error:
        raise TraceError(f"{path}: cannot be read: {error}") from error


def write_trace(path: Path, rows: Iterable[TraceRow]) -> int:
    """Write rows as JSONL, gzipped if the name ends in .gz; return the number of rows."""
    encode = msgspec.json.Encoder().encode
    count = 0
    with _create(path) as file:
        for row in rows:
            file.write(encode(row) + b"\n")
            count += 1
    return count


def _open(path: Path) -> IO[bytes]:
    return io.BufferedReader(gzip.GzipFile(path)) if path.suffix == ".gz" else path.open("rb")


def _create(path: Path) -> IO[bytes]:
    if path.suffix == ".gz":
        # Without the time of writing, the same rows give the same bytes.
        return io.BufferedWriter(gzip.GzipFile(path, "wb", mtime=0))
    return path.open("wb")


def _lines(file: IO[bytes], path: Path) -> Iterator[bytes]:
    number = 0
    # Bounded: a file without line ends would be read whole.
    while line := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES:
            raise TraceError(f"{path}:{number}: the line is over {MAX_LINE_BYTES} bytes")
        yield line


def _row(line: bytes, where: str) -> TraceRow:
    try:
        row = _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TraceError(f"{where}: {error}") from error
    for name, ids in (("hash_ids", row.hash_ids), ("head_ids", row.head_ids)):
        if ids and not -(2**63) <= min(ids) <= max(ids) < 2**64:
            raise TraceError(f"{where}: a hash id has more than 64 bits - at `$.{name}`")
    return row
