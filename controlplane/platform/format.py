"""Formats numbers, shares, durations, and times for people.

formats.json lists the steps of each number format, for this file and for web/frontend/shell/format.js: a value below
a step's limit (null: the last step) is multiplied by its factor and shown with its digits and its unit. Without a
factor, only the unit is shown; without digits, three significant ones without trailing zeros. If None is allowed, it
is shown as a dash.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Any, TypeVar

from django.utils import timezone

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

_ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00")
_twelve_hours: ContextVar[bool] = ContextVar("twelve_hours", default=False)

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


@contextmanager
def shown_times(zone: tzinfo, *, twelve_hours: bool = False) -> Iterator[None]:
    """Write times in this zone and on this clock until the context ends. Outside, they are in UTC, on 24 hours."""
    before = _twelve_hours.set(twelve_hours)
    try:
        with timezone.override(zone):
            yield
    finally:
        _twelve_hours.reset(before)


def zone_name() -> str:
    """Return the name of the zone in which times are written, such as UTC or Europe/Berlin."""
    return timezone.get_current_timezone_name()


def clock_hours() -> int:
    """Return 12 or 24, the hours of the clock on which times are written."""
    return 12 if _twelve_hours.get() else 24


def clock_time(at: float | datetime, timespec: str = "seconds") -> str:
    """Return the time of day of `at`, unix seconds or a time: 03:13:18, or 3:13:18 am.

    `timespec` is the smallest unit: minutes, seconds, or milliseconds.
    """
    when = _in_zone(at)
    text = when.time().isoformat(timespec)
    if not _twelve_hours.get():
        return text
    return f"{when.hour % 12 or 12}{text[2:]}{NARROW_SPACE}{'am' if when.hour < 12 else 'pm'}"


def day(at: float | datetime) -> str:
    """Return the day of `at`, unix seconds or a time: 20 Nov."""
    when = _in_zone(at)
    return f"{when.day} {when:%b}"


def day_time(at: float | datetime, timespec: str = "minutes") -> str:
    """Return the day and time of day of `at`, unix seconds or a time: 20 Nov 03:13."""
    return f"{day(at)} {clock_time(at, timespec)}"


def date_time(at: float | datetime, timespec: str = "minutes") -> str:
    """Return the date and time of day of `at`, unix seconds or a time: 2026-11-20 03:13."""
    return f"{_in_zone(at):%Y-%m-%d} {clock_time(at, timespec)}"


def with_clocks(text: str) -> str:
    """Return the text with the time of day in place of each time that `iso` wrote."""
    return _ISO.sub(lambda match: clock_time(datetime.fromisoformat(match[0])), text)


def _in_zone(at: float | datetime) -> datetime:
    return timezone.localtime(at if isinstance(at, datetime) else datetime.fromtimestamp(at, UTC))


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
        return f"{date_time(datetime.fromisoformat(self.iso), 'seconds')} {zone_name()}"


def moment(at: datetime | None, now: datetime) -> Moment | None:
    """Return `at` as a Moment relative to `now`; None for None."""
    return None if at is None else moment_of(at, now)


def moment_of(at: datetime, now: datetime) -> Moment:
    """Return `at` as a Moment relative to `now`."""
    clock = clock_time(at) if _in_zone(at).date() == _in_zone(now).date() else date_time(at)
    iso_text = at.astimezone(UTC).isoformat(timespec="milliseconds")
    return Moment(iso_text, clock, relative((now - at).total_seconds()))


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
