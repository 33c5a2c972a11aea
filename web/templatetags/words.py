"""Filters that write numbers, shares, and times as words, and tags for shapes and timestamps."""

from __future__ import annotations

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from controlplane.platform import format as words
from controlplane.platform.environment import PROGRAM
from controlplane.platform.format import Moment
from simulator.replay.host_pace import pace_words
from web.shell.chart import place
from web.shell.say import joined_lines

register = template.Library()
_HIDDEN = mark_safe(' aria-hidden="true"')
_UNTOLD = (None, "")
"""Values that represent a missing object; templates render its attributes as empty text."""
_PAST = {
    "cancel": "canceled",
    "exit": "recorded the exit of",
    "learn": "learned the costs of",
    "lost": "lost contact with",
    "overrun": "overran",
    "ready": "returned to service",
    "retry": "retried",
    "set": "set",
    "silent": "lost contact with",
    "stop": "stopped",
    "withdraw": "withdrew",
}
"""Past tense of audit verbs that do not end with -ed."""

for item in (
    words.brief_percent,
    words.byte_rate,
    words.byte_size,
    words.clock_time,
    words.day_time,
    words.duration,
    words.moment,
    words.percent,
    words.rate,
    words.roughly,
    words.sentence,
    words.setting,
    words.short,
    words.signed,
    words.span,
    words.whole,
    words.with_clocks,
):
    register.filter(item.__name__, item)
register.filter(pace_words.__name__, pace_words)


@register.filter
def counted(number: float, noun: str) -> str:
    """Return the number with its noun: 2 prefixes. An irregular plural follows the noun after a comma."""
    singular, _, plural = noun.partition(",")
    return words.count(round(number), singular, plural)


@register.filter
def absolute(value: float | None) -> float | None:
    """Return the value without its sign."""
    return None if value is None else abs(value)


@register.filter
def shorter(gain_s: float | None) -> str:
    """Return by how much a time is shorter or, for a negative gain, longer, such as "120 ms shorter"."""
    if gain_s is None:
        return words.UNKNOWN
    return f"{words.duration(abs(gain_s))} {'shorter' if gain_s > 0 else 'longer'}" if gain_s else "the same"


@register.simple_block_tag
def tile(content: str, label: str, figure: object) -> SafeString:
    """Return a key figure with its label; the content is a line of context, whose title shows if it is cut."""
    text = str(figure)
    # "1 min 21 s" has no unit of its own.
    number, gap, unit = text.rpartition(words.NARROW_SPACE) if text.count(words.NARROW_SPACE) == 1 else ("", "", text)
    note = SafeString(joined_lines(content))
    return format_html(
        '<div class="tile"><p class="tile-label"><span>{}</span></p><p class="tile-value"><b>{}</b>{}</p>'
        '<p class="tile-note" title="{}">{}</p></div>',
        label,
        number if gap else unit,
        format_html("<small>{}</small>", unit) if gap else "",
        note,
        note,
    )


@register.filter
def over(part: float, whole: float) -> float | None:
    """Return the ratio; None, which renders as a dash, if the divisor is zero."""
    return part / whole if whole and part not in _UNTOLD else None


@register.filter
def times(value: float | None, factor: float) -> float:
    """Return the product, such as slots in bytes; 0 if there is no value."""
    return (value or 0) * factor


@register.filter
def in_percent(share: float | None) -> str:
    """Return a share 0..1 in percent without the unit, which is in the column header."""
    return words.UNKNOWN if share in _UNTOLD else f"{100 * share:.1f}"


@register.filter
def width(share: float | None, digits: int = 2) -> str:
    """Return a share 0..1 as an SVG length; zero if unknown, full width if above 1."""
    return place(100 * min(1.0, share or 0.0), digits)


@register.simple_tag(takes_context=True)
def say(context: template.Context, name: str, **facts: object) -> SafeString:
    """Return the included sentence on one line, so that an attribute, a stop, or an inline element can follow it."""
    with context.push(**facts):
        # The template has escaped its values.
        return SafeString(joined_lines(context.template.engine.get_template(name).render(context)))


@register.simple_tag
def program() -> str:
    """Return the name of Headway's command line."""
    return PROGRAM


@register.simple_tag
def shape(name: str, more: str = "", *, hidden: bool = False) -> SafeString:
    """Return the shape of a state with `more` CSS classes. Use `hidden` to hide it from screen readers if text names
    the state.
    """
    return format_html(
        '<svg class="icon shape shape-{}{}"{}><use href="#s-{}"/></svg>',
        name,
        f" {more}" if more else "",
        _HIDDEN if hidden else "",
        name,
    )


@register.simple_tag
def ago(at: Moment | None, *, zone: bool = False, exact: bool = False) -> SafeString:
    """Return the age of a timestamp; its title is the time of day, or date and time to the second."""
    if at is None:
        return SafeString()
    title = at.exact if exact else f"{at.clock} {words.zone_name()}" if zone else at.clock
    return format_html('<time datetime="{}" title="{}">{}</time>', at.iso, title, at.ago)


@register.filter
def deed(verb: str) -> str:
    """Return an audit verb in the past tense without its object: `engine.drain` becomes drained."""
    first, *rest = verb.rpartition(".")[2].split("_")
    ending = "" if first.endswith("ed") else "d" if first.endswith("e") else "ed"
    return " ".join([_PAST.get(first, first + ending), *rest])
