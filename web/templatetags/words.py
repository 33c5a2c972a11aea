"""Numbers, shares, times and moments in words, as filters of templates."""

from __future__ import annotations

from django import template

from controlplane.platform import format as words
from web.shell.chart import place

register = template.Library()
_UNTOLD = (None, "")
"""Templates write what an object that is not there would say as an empty text."""

for each in (
    words.byte_rate,
    words.byte_size,
    words.duration,
    words.moment,
    words.percent,
    words.plain,
    words.rate,
    words.sentence,
    words.setting,
    words.short,
    words.signed,
    words.span,
    words.whole,
):
    register.filter(each.__name__, each)


@register.filter
def counted(number: int, noun: str) -> str:
    """Return the number with its noun, whose plural follows a comma where it is irregular: 2 prefixes."""
    singular, _, plural = noun.partition(",")
    return words.count(number, singular, plural)


@register.filter
def over(part: float, whole: float) -> float | None:
    """Return the ratio; None, which reads as a dash, where there is nothing to divide by."""
    return part / whole if whole and part not in _UNTOLD else None


@register.filter
def times(value: float, factor: float) -> float:
    """Return the product, such as slots in bytes."""
    return value * factor


@register.filter
def in_percent(share: float | None) -> str:
    """Return a share 0..1 in percent without the unit, which the head of its column has."""
    return words.UNKNOWN if share in _UNTOLD else f"{100 * share:.1f}"


@register.filter
def width(share: float | None, digits: int = 2) -> str:
    """Return a share 0..1 as a length in SVG; none where it is not known, all where it is more."""
    return place(100 * min(1.0, share or 0.0), digits)
