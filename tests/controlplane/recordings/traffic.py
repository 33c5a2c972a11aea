"""Traffic that nobody sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gateway.contracts.traffic_row import TrafficBatch, TrafficRow, encode_batch

START = 1_800_000_000.0
WIDE = 2**64 - 3


def row(number: int = 0, **fields: Any) -> TrafficRow:
    """Return one request that went well, `number` seconds after START, sharing its first block with all others."""
    known: dict[str, Any] = {
        "at": START + number, "pool": "chat", "prompt_tokens": 1500, "output_tokens": 20,
        "blocks": (7, WIDE - number, 3 * number + 11), "session": f"s{number % 5}", "tenant": "acme-digest",
        "outcome": "completed", "ttft_s": 0.5, "total_s": 2.0, "cached_tokens": 512, "engines": 4, "policy_version": 3,
    }  # fmt: skip
    return TrafficRow(**{**known, **fields})


def rows(count: int, begin: int = 0, **fields: Any) -> list[TrafficRow]:
    """Return one request per second."""
    return [row(number, **fields) for number in range(begin, begin + count)]


def batch(rows: Sequence[TrafficRow]) -> bytes:
    """Return the rows as a gateway sends them."""
    return encode_batch(TrafficBatch("here:1", tuple(rows)))
