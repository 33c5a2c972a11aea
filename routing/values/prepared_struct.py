"""Make msgspec inspect a struct's fields in one thread at a time."""

from __future__ import annotations

import threading  # noqa: TID251  # starts no thread: a lock against those of its callers
from typing import Any, TypeVar

import msgspec

KindT = TypeVar("KindT")

_lock = threading.Lock()
_prepared: set[Any] = set()


def prepared(kind: KindT) -> KindT:
    """Return `kind` after msgspec has inspected all its fields, so that values can be converted or decoded to it.

    msgspec (0.22) inspects a struct's fields at the first use and exposes them to other threads before it is done: a
    concurrent second first use crashes the process with a segmentation fault.
    """
    # Checked without the lock, since the set only grows.
    if kind not in _prepared:
        with _lock:
            # Building a decoder makes msgspec inspect the whole type, nested structs included.
            msgspec.msgpack.Decoder(kind)
            _prepared.add(kind)
    return kind
