"""Generated traffic."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from controlplane.request_log.models.segment import Segment
from controlplane.request_log.store.segments import store
from gateway.contracts.request_batch import encode_batch, pack_row, request_batch
from gateway.contracts.traffic_row import TrafficRow
from tests.gateway.ended_requests import BLANK

START = 1_800_000_000.0
WIDE = 2**64 - 3


def row(number: int = 0, **fields: Any) -> TrafficRow:
    """Return one successful request, `number` seconds after START. All rows share their first block."""
    known: dict[str, Any] = {
        **BLANK, "arrived_at": START + number, "pool": "chat", "prompt_tokens": 1500, "output_tokens": 20,
        "blocks": (7, WIDE - number, 3 * number + 11), "session": f"s{number % 5}", "tenant": "acme-digest",
        "first_token_after_s": 0.5, "finished_after_s": 2.0, "cached_tokens": 512, "engines": 4, "policy_version": 3,
    }  # fmt: skip
    return TrafficRow(**{**known, **fields})


def rows(count: int, begin: int = 0, **fields: Any) -> list[TrafficRow]:
    """Return one request per second."""
    return [row(number, **fields) for number in range(begin, begin + count)]


def batch(rows: Sequence[TrafficRow], name: str = "") -> bytes:
    """Return the rows in the format of a gateway."""
    return encode_batch(request_batch(name or uuid.uuid4().hex, list(map(pack_row, rows)), ()))


def record(rows: Sequence[TrafficRow]) -> None:
    """Store the rows at the arrival time of the last one."""
    name = uuid.uuid4().hex
    store([batch(rows, name)])
    Segment.objects.filter(batch=name).update(at_ms=int(rows[-1].arrived_at * 1000))
