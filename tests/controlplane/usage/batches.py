"""Batches of usage as gateways send them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from gateway.usage.usage_messages import UsageBatch, UsageEntry

NOW = datetime(2026, 11, 28, 12, 0, 30, tzinfo=UTC)


def at_ms(moment: datetime = NOW) -> int:
    return int(moment.timestamp() * 1000)


def entry(number: int, **fields: Any) -> UsageEntry:
    known: dict[str, Any] = {
        "at_ms": at_ms(), "tenant_id": "acme", "key_id": "key-1", "pool_id": "pool", "model": "m",
        "outcome": "completed", "prompt": 100, "cached": 40, "output": 10,
    }  # fmt: skip
    return UsageEntry(number, **{**known, **fields})


def batch(*entries: UsageEntry, after: int | None = None, journal: str = "j", mark: int = 0, state: int = 0) -> bytes:
    begin = after if after is not None else entries[0].number - 1 if entries else 0
    return msgspec.msgpack.encode(UsageBatch(journal, begin, mark, state, list(entries)))
