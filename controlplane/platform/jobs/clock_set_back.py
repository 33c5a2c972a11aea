"""What automations remember, after the machine's clock was set back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

_A_YEAR_S = 365 * 86_400.0


def moved_back(memory: Mapping[str, Any], by: timedelta, now: datetime) -> dict[str, Any]:
    """Return the memory with its moments as much earlier as the clock is, so that no hold lasts the hour longer.

    Moments are unix seconds as floats; no other number of a memory comes near today's.
    """
    if not by:
        return dict(memory)
    by_s, now_s = by.total_seconds(), now.timestamp()

    def move(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: move(each) for key, each in value.items()}
        if isinstance(value, list):
            return [move(each) for each in value]
        if isinstance(value, float) and abs(value - now_s) < _A_YEAR_S:
            return value - by_s
        return value

    moved: dict[str, Any] = move(dict(memory))
    return moved
