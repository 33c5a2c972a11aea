"""Segments of the ring in the form before: gzipped JSON lines, which are read until they leave for their age."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from gateway.traffic_row import NamedRow

SUFFIX = ".jsonl.gz"
MAX_LINE_BYTES = 8 << 20
_CHUNK = 1 << 16

_decode = msgspec.json.Decoder(NamedRow).decode


def old_rows(path: Path) -> Iterator[NamedRow]:
    """Yield the rows of each whole gzip member, and stop silently where the file was cut off or is gone."""
    rest = b""
    for data in _plain(path):
        *lines, rest = (rest + data).split(b"\n")
        if len(rest) > MAX_LINE_BYTES:
            return
        for line in lines:
            try:
                yield _decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError):
                return


def _plain(path: Path) -> Iterator[bytes]:
    unpacker = zlib.decompressobj(wbits=31)
    try:
        with path.open("rb") as file:
            while data := file.read(_CHUNK):
                while data:
                    yield unpacker.decompress(data)
                    data = unpacker.unused_data
                    if unpacker.eof:
                        unpacker = zlib.decompressobj(wbits=31)
    except (zlib.error, FileNotFoundError):
        return
