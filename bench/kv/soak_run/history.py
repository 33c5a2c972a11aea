"""The clients' operations and their outcomes: one line when an operation begins and one when it ends.

A client can be killed at any time. It is unknown whether an operation without an end took effect. Times are seconds of
the machine's monotonic clock, which all processes share.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import msgspec

EVERY_NODE = -1


class Operation(msgspec.Struct, omit_defaults=True):
    """One operation. Mutable until it ends."""

    kind: str
    """put, get, pull, pin, purge, allocate, write, commit or abort."""
    node: int
    """EVERY_NODE if any node can have answered."""
    names: list[str]
    number: int = 0
    client: str = ""
    began: float = 0.0
    ended: float | None = None
    outcome: str = ""
    """done, rejected or broken; empty if unknown."""
    reason: str = ""
    tx_id: str = ""
    lease_s: float = 0.0
    tenant: str = ""
    hits: list[str] = []
    """For a get, names that were hits. For an allocate, names that were new."""
    wrong: list[str] = []
    """For a get, names whose bytes differ from those put."""


class HistoryWriter:
    """Appends one client's operations to a file, each line with one write."""

    def __init__(self, path: Path, client: str) -> None:
        self._file: BinaryIO = path.open("ab", buffering=0)
        self._client, self._number = client, 0

    @contextmanager
    def noting(self, operation: Operation) -> Iterator[Operation]:
        """Record the operation's start and end around the context."""
        self._number += 1
        operation.number, operation.client, operation.began = self._number, self._client, time.monotonic()
        self._write(operation)
        yield operation
        operation.ended = time.monotonic()
        self._write(operation)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, operation: Operation) -> None:
        self._file.write(msgspec.json.encode(operation) + b"\n")


def read_history(paths: Iterable[Path]) -> list[Operation]:
    """Return all operations in order of their start, without a line that a killed client left incomplete."""
    decoder, operations = msgspec.json.Decoder(Operation), dict[tuple[str, int], Operation]()
    for path in paths:
        # The last piece is empty, or the unfinished line of a killed client.
        for line in path.read_bytes().split(b"\n")[:-1]:
            operation = decoder.decode(line)
            # The line of an operation's end replaces that of its beginning.
            operations[operation.client, operation.number] = operation
    return sorted(operations.values(), key=lambda item: item.began)
