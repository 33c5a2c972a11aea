"""Moments as pages write them: absolute and relative, in UTC."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

_STEPS = ((86_400 * 2, 86_400, "d"), (7_200, 3_600, "h"), (120, 60, "min"), (1, 1, "s"))


@dataclass(frozen=True, slots=True)
class Moment:
    """One moment: `iso` for machines, `clock` for reading, `ago` for a feeling."""

    iso: str
    clock: str
    """Time of day, with the date where it is another day."""
    ago: str


def moment(at: datetime | None, now: datetime) -> Moment | None:
    """Return how `at` reads now; None for None."""
    return None if at is None else moment_of(at, now)


def moment_of(at: datetime, now: datetime) -> Moment:
    """Return how `at` reads now."""
    local, today = at.astimezone(UTC), now.astimezone(UTC).date()
    clock = local.strftime("%H:%M:%S" if local.date() == today else "%Y-%m-%d %H:%M")
    return Moment(local.isoformat(timespec="milliseconds"), clock, relative((now - at).total_seconds()))


def relative(seconds: float) -> str:
    """Return how long ago, or how long until for negative seconds: 41 s ago, in 29 d."""
    length = abs(seconds)
    if length < 1:
        return "just now"
    unit, name = next((unit, name) for least, unit, name in _STEPS if length >= least)
    # What is to come is rounded: a key made for 90 days would read "in 89 d" a moment later.
    words = f"{int(length / unit) if seconds > 0 else round(length / unit)}\u202f{name}"
    return f"{words} ago" if seconds > 0 else f"in {words}"
