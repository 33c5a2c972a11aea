"""Filters that format figures in the document's templates."""

from __future__ import annotations

from collections.abc import Iterable

from django.template import Library

register = Library()


@register.filter
def num(value: object, spec: str = "") -> str:
    """Return a figure in Python's format specification, empty without a figure."""
    return "" if value is None else format(value, spec)


@register.filter
def nums(values: Iterable[object], spec: str = "") -> str:
    """Return figures separated by slashes."""
    return " / ".join(num(value, spec) for value in values)


@register.filter
def span(values: Iterable[float], spec: str = "") -> str:
    """Return the lowest and the highest of several figures."""
    numbers = list(values)
    return f"{min(numbers):{spec}} to {max(numbers):{spec}}"
