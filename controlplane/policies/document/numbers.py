"""Formats numbers of a policy for JSON and sentences."""

from __future__ import annotations

from decimal import Decimal

_PLAIN = (1e-6, 1e21)
"""Range of numbers that are written without an exponent, as in browsers."""

_LONGEST_WHOLE = 1e15


def json_number(value: float) -> str:
    """Return the number in the JSON format of browsers: 8, 0.00008, 2e-9."""
    if isinstance(value, int):
        return str(value)
    if value == 0:
        return "0"
    low, high = _PLAIN
    if low <= abs(value) < high:
        plain = f"{Decimal(repr(value)):f}"
        return plain.rstrip("0").rstrip(".") if "." in plain else plain
    mantissa, _, exponent = repr(value).partition("e")
    return f"{mantissa.removesuffix('.0')}e{int(exponent):+d}" if exponent else mantissa


def number_words(value: float) -> str:
    """Return the number for a sentence: 1,000,000; 0.05; 2e-9."""
    if not isinstance(value, int) and not value.is_integer():
        return json_number(value)
    # Decimal takes integers that are too large for a float.
    return f"{int(value):,}" if abs(value) < _LONGEST_WHOLE else f"{Decimal(value):.3g}"
