"""Lists with declared filters, declared orders, and pages.

A page continues after the last row of the previous page (keyset). Therefore later pages cost no more, and rows that are
added or deleted meanwhile do not repeat or hide others.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from django.core.exceptions import ValidationError
from django.core.serializers.json import DjangoJSONEncoder
from django.db.models import Model, Q, QuerySet
from django.utils.dateparse import parse_datetime
from rest_framework.request import Request

from controlplane.platform.api.problem import ProblemError
from controlplane.platform.field_problems import FieldProblem

MAX_VALUES = 50
MAX_LENGTH = 200


class BadFilterError(ValueError):
    """The value is invalid. The message names valid values."""


@dataclass(frozen=True, slots=True)
class Filter:
    """One query parameter: its lookup, its parser, and its meaning."""

    lookup: str
    """Django lookup of the field, without the `__in` for repeated values."""
    sentence: str
    read: Callable[[str], Any] = str
    """Parser of the value. If it returns a list, any of its values matches."""
    choices: tuple[str, ...] = ()
    repeats: bool = True
    """Whether the parameter may be repeated. Several values match any of them."""
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "string", "maxLength": MAX_LENGTH})

    def apply(self, rows: QuerySet[Any], texts: list[str]) -> QuerySet[Any]:
        """Return the rows with one of the values. Raises BadFilterError."""
        if len(texts) > (MAX_VALUES if self.repeats else 1):
            raise BadFilterError(f"Give at most {MAX_VALUES if self.repeats else 1} of this.")
        read = [self._value(text) for text in texts]
        values = [value for item in read for value in (item if isinstance(item, list) else [item])]
        return rows.filter(**{f"{self.lookup}__in": values} if self.repeats else {self.lookup: values[0]})

    def _value(self, text: str) -> Any:
        # PostgreSQL takes no NUL in a text.
        if len(text) > MAX_LENGTH or "\x00" in text:
            raise BadFilterError(f"Give at most {MAX_LENGTH} plain characters.")
        if self.choices and text not in self.choices:
            raise BadFilterError(f"Must be one of {', '.join(self.choices)}.")
        return self.read(text)


def exact(lookup: str, sentence: str) -> Filter:
    """Return a filter for an exact text."""
    return Filter(lookup, sentence)


def one_of(lookup: str, choices: Iterable[str], sentence: str) -> Filter:
    """Return a filter for one of the given words."""
    known = tuple(choices)
    return Filter(lookup, sentence, choices=known, schema={"type": "string", "enum": list(known)})


def contains(lookup: str, sentence: str) -> Filter:
    """Return a case-insensitive substring filter."""
    return Filter(f"{lookup}__icontains", sentence, repeats=False)


def truth(lookup: str, sentence: str) -> Filter:
    """Return a filter for true or false."""
    return Filter(lookup, sentence, read=_truth, repeats=False, schema={"type": "boolean"})


def present(field_name: str, sentence: str) -> Filter:
    """Return a filter on whether the field has a value."""
    schema = {"type": "boolean"}
    return Filter(f"{field_name}__isnull", sentence, read=lambda text: not _truth(text), repeats=False, schema=schema)


def moment(lookup: str, sentence: str) -> Filter:
    """Return a filter for a time, in UTC unless it includes an offset."""
    return Filter(lookup, sentence, read=_moment, repeats=False, schema={"type": "string", "format": "date-time"})


def _truth(text: str) -> bool:
    if text not in ("true", "false"):
        raise BadFilterError("Must be true or false.")
    return text == "true"


def _moment(text: str) -> datetime:
    try:
        read = parse_datetime(text)
        if read is None:
            raise BadFilterError("Must be a time such as 2030-01-31T12:00:00Z.")
        # Raises OverflowError within a day of year 1 and of year 9999.
        return (read if read.tzinfo else read.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise BadFilterError("Must be a time such as 2030-01-31T12:00:00Z.") from None


DEFAULT_LIMIT = 50
MAX_LIMIT = 500
MAX_CURSOR = 2000
_CONTROLS = ("limit", "cursor", "ordering")


@dataclass(frozen=True, slots=True)
class ListPage:
    """One page of rows, and the cursor of the next page (empty on the last page)."""

    rows: list[Any]
    next_cursor: str


@dataclass(frozen=True, slots=True)
class Listing:
    """Filters and orders for a list of objects of one kind."""

    orders: Mapping[str, tuple[str, ...]]
    """Order name → its fields, ascending, the last one unique. A minus before the name reverses the order."""
    default: str
    filters: Mapping[str, Filter] = field(default_factory=dict)

    def page(self, request: Request, rows: QuerySet[Any]) -> ListPage:
        """Return the page for the query. Raises ProblemError that names every invalid parameter."""
        query = request.query_params
        problems = [
            FieldProblem(name, f"Is not a parameter; known are {', '.join((*self.filters, *_CONTROLS))}.")
            for name in query
            if name not in self.filters and name not in _CONTROLS
        ]
        for name, rule in self.filters.items():
            if name in query:
                try:
                    rows = rule.apply(rows, query.getlist(name))
                except BadFilterError as error:
                    problems.append(FieldProblem(name, str(error)))
        limit = _limit(query.get("limit", str(DEFAULT_LIMIT)), problems)
        order = self._order(query.get("ordering", self.default), problems)
        after = _after(rows.model, order, query.get("cursor"), problems)
        if problems:
            raise ProblemError(400, "Some parameters are invalid; see errors.", problems)
        rows_read = list(rows.filter(after).order_by(*order)[: limit + 1])
        return ListPage(rows_read[:limit], _cursor(rows_read[limit - 1], order) if len(rows_read) > limit else "")

    def names(self) -> list[str]:
        """Return the names of the orders."""
        return [sign + name for name in self.orders for sign in ("", "-")]

    def _order(self, wanted: str, problems: list[FieldProblem]) -> tuple[str, ...]:
        name = wanted.removeprefix("-")
        if name not in self.orders:
            problems.append(FieldProblem("ordering", f"Must be one of {', '.join(self.names())}."))
            # Any order will do: the page raises the problem before it reads rows.
            return ("pk",)
        fields = self.orders[name]
        return fields if wanted == name else tuple(f"-{item}" for item in fields)


def _limit(text: str, problems: list[FieldProblem]) -> int:
    if text.isascii() and text.isdigit() and len(text) < 5 and 1 <= int(text) <= MAX_LIMIT:
        return int(text)
    problems.append(FieldProblem("limit", f"Must be a whole number from 1 to {MAX_LIMIT}."))
    return DEFAULT_LIMIT


def _cursor(row: Any, order: tuple[str, ...]) -> str:
    values = [_value(row, name.removeprefix("-")) for name in order]
    text = json.dumps([list(order), values], cls=_Exact, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


class _Exact(DjangoJSONEncoder):
    """A JSON encoder that keeps microseconds, which Django's encoder truncates to milliseconds."""

    def default(self, o: Any) -> Any:
        """Return a JSON value."""
        return o.isoformat() if hasattr(o, "isoformat") else super().default(o)


def _value(row: Any, path: str) -> Any:
    for name in path.split("__"):
        row = getattr(row, name)
    return row


def _after(model: type[Model], order: tuple[str, ...], cursor: str | None, problems: list[FieldProblem]) -> Q:
    """Return the condition for rows after the cursor, comparing field by field."""
    if cursor is None:
        return Q()
    try:
        values = _values(model, order, cursor)
    # The client may have made up the cursor: deeply nested JSON raises RecursionError.
    except (ValueError, TypeError, binascii.Error, ValidationError, RecursionError):
        problems.append(FieldProblem("cursor", "Is not a cursor of this list and order; start without one."))
        return Q()
    condition, equal = Q(), Q()
    for name, value in zip(order, values, strict=True):
        plain = name.removeprefix("-")
        condition |= equal & Q(**{f"{plain}__{'lt' if name.startswith('-') else 'gt'}": value})
        equal &= Q(**{plain: value})
    return condition


def _values(model: type[Model], order: tuple[str, ...], cursor: str) -> list[Any]:
    if len(cursor) > MAX_CURSOR:
        raise ValueError("too long")
    padded = cursor + "=" * (-len(cursor) % 4)
    kept_order, values = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    if kept_order != list(order) or not isinstance(values, list) or len(values) != len(order):
        raise ValueError("of another order")
    return [_typed(model, name.removeprefix("-"), value) for name, value in zip(order, values, strict=True)]


def _typed(model: type[Model], path: str, value: Any) -> Any:
    if isinstance(value, list | dict | bool) or value is None or (isinstance(value, str) and "\x00" in value):
        raise ValueError("no value of a field")
    *relations, last = path.split("__")
    for name in relations:
        related = model._meta.get_field(name).related_model
        assert isinstance(related, type)  # noqa: S101  # orders name relations to models
        model = related
    field_ = model._meta.pk if last == "pk" else model._meta.get_field(last)
    return field_.to_python(value)
