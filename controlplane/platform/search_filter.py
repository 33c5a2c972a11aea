"""Shared by searches of stored rows: conditions from query parameters, and times that people write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any, Self

from django.utils import timezone
from django.utils.dateparse import parse_datetime

from controlplane.platform.one_line import one_line

MAX_VALUE = 200


class UnreadableFilterError(ValueError):
    """A condition cannot be read; the message says which, and its expected form."""


@dataclass(frozen=True, slots=True)
class SearchFilter:
    """Conditions as texts, one per field of a subclass; empty ones are no condition."""

    @property
    def given(self) -> dict[str, str]:
        """The conditions that are set."""
        return {name: value for name, value in asdict(self).items() if value}

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Return the filter from query parameters; unknown names are ignored, values are cut to MAX_VALUE."""
        return cls(**{field.name: one_line(str(values.get(field.name) or ""))[:MAX_VALUE] for field in fields(cls)})


def moment_of(name: str, text: str) -> datetime:
    """Read a date or time in ISO 8601, in UTC unless it states an offset; raises UnreadableFilterError."""
    try:
        moment = parse_datetime(text if "T" in text or " " in text else f"{text}T00:00:00")
    except ValueError:
        moment = None
    if moment is None:
        raise UnreadableFilterError(f"{name} is not a time; write 2026-11-20T03:13, in UTC.")
    return moment if timezone.is_aware(moment) else timezone.make_aware(moment, timezone.get_default_timezone())
