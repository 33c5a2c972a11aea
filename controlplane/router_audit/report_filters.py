"""Filters of the report's template, which write figures in the console's formats."""

from __future__ import annotations

from collections.abc import Callable

from django.template import Library

from controlplane.platform.format import duration, or_dash, percent, span, whole
from planning.router_audit.audit_summary import BUSY, CACHE, EVICTED, GROWTH, FigureRange
from routing.values.counted import count

CAUSE_WORDS = {
    CACHE: ("Cache", "The other engine held more of the prompt."),
    BUSY: ("Load", "The other engine had less work before it."),
    GROWTH: ("Growth", "The engine's queue grew more after the decision than was expected."),
    EVICTED: ("Eviction", "Blocks that the engine was expected to hold were no longer cached."),
}
"""Cause of regret → its name and meaning."""
register = Library()
for _name, _words in (("duration", duration), ("percent", percent), ("span", span), ("whole", whole), ("count", count)):
    register.filter(_name, _words)


@register.filter
def ends(figure: FigureRange, words: Callable[[float], str] = duration) -> str:
    """Return the ends of a range."""
    return f"{words(figure.low)} to {words(figure.high)}"


@register.filter
def cause_name(cause: str) -> str:
    """Return the name of a cause of regret."""
    return CAUSE_WORDS[cause][0]


@register.filter
def share_of(part: float, total: float) -> str:
    """Return a part of a total in percent; a dash without a total."""
    return or_dash(part / total if total else None, percent)
