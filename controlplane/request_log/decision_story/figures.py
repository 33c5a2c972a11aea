"""Figures of decisions as people read them."""

from __future__ import annotations

NO_BREAK = "\u202f"


def seconds(value: float) -> str:
    """Return a length of time: 3.36 s, 41.2 s, 412 ms, < 1 ms."""
    length = abs(value)
    sign = "−" if value < 0 and length >= 0.0005 else ""
    if length < 0.0005:
        return f"0{NO_BREAK}ms"
    if length < 0.001:
        return f"<{NO_BREAK}1{NO_BREAK}ms"
    if length < 0.9995:
        return f"{sign}{length * 1000:.0f}{NO_BREAK}ms"
    if length < 9.995:
        return f"{sign}{length:.2f}{NO_BREAK}s"
    if length < 99.95:
        return f"{sign}{length:.1f}{NO_BREAK}s"
    return f"{sign}{length:,.0f}{NO_BREAK}s"


def whole(value: float) -> str:
    """Return a whole number with its thousands apart: 11,904."""
    return f"{value:,.0f}"


def plain(value: float) -> str:
    """Return a cost or setting without zeros that say nothing: 8, 5.8, 0.94."""
    return f"{value:,.2f}".rstrip("0").rstrip(".") if abs(value) < 100 else whole(value)


def age(value: float | None) -> str:
    """Return how old something was; a dash where it was never heard."""
    return "—" if value is None else seconds(value)
