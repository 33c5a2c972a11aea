"""Numbers by which Dynamo's selection API names engines."""

from __future__ import annotations

import re

import xxhash

_NAMED = re.compile(r"worker-(\d{1,20})")


def worker_name(number: int) -> str:
    """Return the name of an engine that was registered under this number."""
    return f"worker-{number}"


def worker_id(engine_id: str, name: str) -> int:
    """Return the number of an engine: that of its registration, or one derived from its id, below 2^53."""
    named = _NAMED.fullmatch(name)
    return int(named[1]) if named else xxhash.xxh3_64_intdigest(engine_id.encode()) >> 11
