"""Filters that format figures in the document's templates."""

from __future__ import annotations

from collections.abc import Iterable

from django.template import Library

register = Library()


@register.filter
def num(value: object, spec: str = "") -> str:
    """Return a figure in Python's format specification; empty if there is none."""
    return "" if value is None else format(value, spec)


@register.filter
def nums(values: Iterable[object], spec: str = "") -> str:
    """Return figures with slashes between them."""
    return " / ".join(num(value, spec) for value in values)


@register.filter
def span(values: Iterable[float], spec: str = "") -> str:
    """Return the least and the greatest of several figures."""
    numbers = list(values)
    return f"{min(numbers):{spec}} to {max(numbers):{spec}}"
