"""Numbers and times as the console writes them (the browser's frontend/shell/format.js follows the same rules)."""

from __future__ import annotations

from datetime import UTC, datetime

from routing.values import counted

count = counted.count

NARROW_SPACE = "\u202f"
NO_BREAK_SPACE = "\u00a0"


def clock_time(at: float) -> str:
    """Return the time of day of unix seconds `at` in UTC, as 03:13:18."""
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S")


def day_time(at: float) -> str:
    """Return day and time of unix seconds `at` in UTC, as 20 Nov 03:13."""
    moment = datetime.fromtimestamp(at, UTC)
    return f"{moment.day} {moment.strftime('%b %H:%M')}"


def percent(share: float) -> str:
    """Return a share 0..1 in percent with one decimal."""
    return f"{share * 100:.1f}{NARROW_SPACE}%"


def duration(seconds: float) -> str:
    """Return a length of time: < 1 ms, 84 ms, 2.31 s, 41.2 s, 2 min 32 s."""
    if seconds < 0.001:
        return f"<{NARROW_SPACE}1{NARROW_SPACE}ms" if seconds > 0 else f"0{NARROW_SPACE}s"
    if seconds < 1:
        return f"{seconds * 1000:.0f}{NARROW_SPACE}ms"
    if seconds < 9.995:
        return f"{seconds:.2f}{NARROW_SPACE}s"
    if seconds < 60:
        return f"{seconds:.1f}{NARROW_SPACE}s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}{NARROW_SPACE}min {rest}{NARROW_SPACE}s"


def setting(seconds: float) -> str:
    """Return a duration that somebody set, without trailing zeros: 3.5 s, 5 s, 250 ms."""
    value, unit = (seconds * 1000, "ms") if seconds < 1 else (seconds, "s")
    return f"{value:.3g}{NARROW_SPACE}{unit}"


def rate(per_s: float) -> str:
    """Return requests per second with three significant digits when short."""
    return f"{per_s:.1f}" if per_s < 9.95 else f"{per_s:,.0f}"


def sentence(text: str) -> str:
    """Return the text as a sentence: a capital in front, but not of a name such as e-08, and a full stop at the end."""
    text = text.strip()
    if not text:
        return ""
    first = text[0].upper() if text.split()[0].rstrip(",:").isalpha() else text[0]
    return f"{first}{text[1:]}{'' if text[-1] in '.!?' else '.'}"


def span(seconds: float) -> str:
    """Return a time that is left in whole units: 41 s, 2 min 5 s, 1 h 20 min."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole}{NARROW_SPACE}s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}{NARROW_SPACE}min" + (f" {rest}{NARROW_SPACE}s" if rest else "")
    hours, minutes = divmod(minutes, 60)
    return f"{hours}{NARROW_SPACE}h" + (f" {minutes}{NARROW_SPACE}min" if minutes else "")
