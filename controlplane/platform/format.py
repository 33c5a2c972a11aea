"""Formats numbers, shares, durations, and times for people.

formats.json lists the steps of each number format, for this file and for web/frontend/shell/format.js: a value below
a step's limit (null: the last step) is multiplied by its factor and shown with its digits and its unit. Without a
factor, only the unit is shown; without digits, three significant ones without trailing zeros. If None is allowed, it
is shown as a dash.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from routing.values import counted

NARROW_SPACE = "\u202f"
NO_BREAK_SPACE = "\u00a0"
_FORMATS: dict[str, Any] = json.loads(Path(__file__).with_name("formats.json").read_text(encoding="utf-8"))
UNKNOWN: str = _FORMATS["unknown"]
_MINUS: str = _FORMATS["minus"]
_NUMBERS: dict[str, Any] = _FORMATS["numbers"]
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_DECIMAL = ("B/s", "kB/s", "MB/s", "GB/s", "TB/s")
_UNITS: list[tuple[int, str]] = [(size, name) for size, name in _FORMATS["units"]]

count = counted.count
Value = TypeVar("Value")


def or_dash(value: Value | None, words: Callable[[Value], str]) -> str:
    """Return the formatted value; a dash for None."""
    return UNKNOWN if value is None else words(value)


def _stepped(value: float | None, steps: Sequence[tuple[float | None, float | None, int | None, str]]) -> str:
    """Return the value in the format of its step; a dash for None."""
    if value is None:
        return UNKNOWN
    size = abs(value)
    _, factor, digits, unit = next(step for step in steps if step[0] is None or size < step[0])
    if factor is None:
        return unit
    words = f"{float(f'{size * factor:.3g}'):,.10g}" if digits is None else f"{size * factor:,.{digits}f}"
    # Numbers that round to zero have no sign.
    return f"{_MINUS if value < 0 and words.strip('0.') else ''}{words}{unit}"


def whole(value: float | None) -> str:
    """Return a whole number with thousands separators: 11,904."""
    return _stepped(value, _NUMBERS["whole"])


def plain(value: float) -> str:
    """Return a cost or setting without trailing zeros: 8, 5.8, 0.94."""
    return f"{value:,.2f}".rstrip("0").rstrip(".") if abs(value) < 100 else whole(value)


def short(value: float | None) -> str:
    """Return a count with three significant digits in base 1000: 640, 3.6k, 128k, 0.98M, 8.7M."""
    return _stepped(value, _NUMBERS["short"])


def signed(value: float, digits: int = 1) -> str:
    """Return the number with a sign: +5.0, −1,200. Numbers that round to zero have no sign."""
    rounded = round(value, digits)
    return f"{'+' if rounded > 0 else _MINUS if rounded < 0 else ''}{abs(rounded):,.{digits}f}"


def percent(share: float | None) -> str:
    """Return a share 0..1 in percent with one decimal place."""
    return _stepped(share, _NUMBERS["percent"])


def brief_percent(share: float) -> str:
    """Return a share 0..1 in percent without trailing zeros: 5 %, 12.5 %."""
    return f"{share * 100:.3g}{NARROW_SPACE}%"


def rate(per_s: float | None) -> str:
    """Return events per second: 4.2, 118, 1,204."""
    return _stepped(per_s, _NUMBERS["rate"])


def byte_size(size: float) -> str:
    """Return bytes with three significant digits in binary units: 0 B, 512 KiB, 1.25 GiB."""
    return _in_units(size, 1024.0, _BINARY)


def byte_rate(bytes_per_s: float) -> str:
    """Return a transfer rate with three significant digits in decimal units, as for network links; empty for 0."""
    return _in_units(bytes_per_s, 1000.0, _DECIMAL) if bytes_per_s > 0 else ""


def duration(seconds: float | None) -> str:
    """Return a duration: 48 µs, 84 ms, 2.31 s, 41.2 s, 2 min 32 s, 3 h 5 min."""
    steps = _NUMBERS["duration"]
    if seconds is None or abs(seconds) < steps[-1][0]:
        return _stepped(seconds, steps)
    return f"{_MINUS if seconds < 0 else ''}{span(abs(seconds))}"


def span(seconds: float) -> str:
    """Return a remaining time in at most two whole units: 41 s, 2 min 5 s, 1 h 20 min, 2 d 3 h."""
    left = max(0, round(seconds))
    first = next((index for index, (size, _) in enumerate(_UNITS) if left >= size), len(_UNITS) - 1)
    words: list[str] = []
    for size, name in _UNITS[first : first + 2]:
        number, left = divmod(left, size)
        if number or not words:
            words.append(f"{number}{NARROW_SPACE}{name}")
    return " ".join(words)


def roughly(seconds: float) -> str:
    """Return an estimated time in one unit, rounded up: 41 s, 3 min, 5 h, 3 days."""
    for size, name, most in ((1, "s", 90), (60, "min", 90), (3600, "h", 48)):
        if seconds / size < most:
            return f"{max(1, math.ceil(seconds / size - 1e-6))}{NARROW_SPACE}{name}"
    return count(math.ceil(seconds / 86_400), "day")


def setting(seconds: float | None) -> str:
    """Return a configured duration without trailing zeros: 3.5 s, 5 s, 250 ms."""
    return _stepped(seconds, _NUMBERS["setting"])


def some_names(names: Sequence[str], most: int) -> str:
    """Return the first names and the number of further names: a, b, c and 4 more."""
    shown, rest = ", ".join(names[:most]), len(names) - most
    return f"{shown} and {rest} more" if rest > 0 else shown


def sentence(text: str) -> str:
    """Return the text as a sentence: with a full stop, and capitalized unless it begins with a name such as e-08."""
    text = text.strip()
    if not text:
        return ""
    first = text[0].upper() if text.split()[0].rstrip(",:").isalpha() else text[0]
    return f"{first}{text[1:]}{'' if text[-1] in '.!?' else '.'}"


def clock_time(at: float) -> str:
    """Return the UTC time of day of unix seconds `at`: 03:13:18."""
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S")


def day_time(at: float) -> str:
    """Return the UTC day and time of unix seconds `at`: 20 Nov 03:13."""
    when = datetime.fromtimestamp(at, UTC)
    return f"{when.day} {when.strftime('%b %H:%M')}"


def iso(at: float) -> str:
    """Return unix seconds in ISO 8601, for a time element."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in time: `iso` for machines, `clock` for people, `ago` relative to now."""

    iso: str
    clock: str
    """Time of day, with the date if it is not today."""
    ago: str

    @property
    def exact(self) -> str:
        """Return date and time to the second."""
        return f"{self.iso[:10]} {self.iso[11:19]} UTC"


def moment(at: datetime | None, now: datetime) -> Moment | None:
    """Return `at` as a Moment relative to `now`; None for None."""
    return None if at is None else moment_of(at, now)


def moment_of(at: datetime, now: datetime) -> Moment:
    """Return `at` as a Moment relative to `now`."""
    local, today = at.astimezone(UTC), now.astimezone(UTC).date()
    clock = local.strftime("%H:%M:%S" if local.date() == today else "%Y-%m-%d %H:%M")
    return Moment(local.isoformat(timespec="milliseconds"), clock, relative((now - at).total_seconds()))


def relative(seconds: float) -> str:
    """Return the time since or, for negative seconds, the time until: 41 s ago, in 29 d."""
    length = abs(seconds)
    if length < 1:
        return "just now"
    size, name = next((size, name) for size, name in _UNITS if length >= (2 * size if size > 1 else 1))
    # A future time is rounded: a key made for 90 days would read "in 89 d" a moment later.
    words = f"{int(length / size) if seconds > 0 else round(length / size):,}{NARROW_SPACE}{name}"
    return f"{words} ago" if seconds > 0 else f"in {words}"


def ago(seconds: float) -> str:
    """Return the time since. It is never in the future, because clocks can differ."""
    return relative(max(0.0, seconds))


def _in_units(value: float, base: float, units: tuple[str, ...]) -> str:
    step = 0
    while value >= 999.5 and step < len(units) - 1:
        value, step = value / base, step + 1
    digits = 0 if step == 0 or value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:.{digits}f}{NARROW_SPACE}{units[step]}"


def one_line(text: str) -> str:
    """Return the text without characters that break lines or tables."""
    return "".join(character if character.isprintable() else " " for character in text).strip()
