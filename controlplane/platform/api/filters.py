"""Filters of lists, checked before they reach the database."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from django.db.models import QuerySet
from django.utils.dateparse import parse_datetime

MAX_VALUES = 50
MAX_LENGTH = 200


class BadFilterError(ValueError):
    """The value cannot be used; the message says which would do."""


@dataclass(frozen=True, slots=True)
class Filter:
    """One query parameter: which look-up it makes, how its text is read, and what it means."""

    lookup: str
    """Of the field, without the `__in` that repeated values make."""
    sentence: str
    read: Callable[[str], Any] = str
    choices: tuple[str, ...] = ()
    repeats: bool = True
    """Several values mean any of them."""
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "string", "maxLength": MAX_LENGTH})

    def apply(self, rows: QuerySet[Any], texts: list[str]) -> QuerySet[Any]:
        """Return the rows with one of the values; raises BadFilterError."""
        if len(texts) > (MAX_VALUES if self.repeats else 1):
            raise BadFilterError(f"Give at most {MAX_VALUES if self.repeats else 1} of this.")
        values = [self._value(text) for text in texts]
        return rows.filter(**{f"{self.lookup}__in": values} if self.repeats else {self.lookup: values[0]})

    def _value(self, text: str) -> Any:
        if len(text) > MAX_LENGTH or "\x00" in text:
            raise BadFilterError(f"Give at most {MAX_LENGTH} plain characters.")
        if self.choices and text not in self.choices:
            raise BadFilterError(f"Must be one of {', '.join(self.choices)}.")
        return self.read(text)


def exact(lookup: str, sentence: str) -> Filter:
    """Return a filter for equal text."""
    return Filter(lookup, sentence)


def one_of(lookup: str, choices: Iterable[str], sentence: str) -> Filter:
    """Return a filter for known words."""
    known = tuple(choices)
    return Filter(lookup, sentence, choices=known, schema={"type": "string", "enum": list(known)})


def contains(lookup: str, sentence: str) -> Filter:
    """Return a filter for a part of the text, in any case of letters."""
    return Filter(f"{lookup}__icontains", sentence, repeats=False)


def truth(lookup: str, sentence: str) -> Filter:
    """Return a filter for true or false."""
    return Filter(lookup, sentence, read=_truth, repeats=False, schema={"type": "boolean"})


def present(field_name: str, sentence: str) -> Filter:
    """Return a filter for whether the field has a value."""
    schema = {"type": "boolean"}
    return Filter(f"{field_name}__isnull", sentence, read=lambda text: not _truth(text), repeats=False, schema=schema)


def moment(lookup: str, sentence: str) -> Filter:
    """Return a filter for a time; without an offset it is UTC."""
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
        return (read if read.tzinfo else read.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise BadFilterError("Must be a time such as 2030-01-31T12:00:00Z.") from None
