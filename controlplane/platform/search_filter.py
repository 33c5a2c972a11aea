"""Shared code of searches: conditions from query parameters, and times that people enter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any, Self

from django.utils import timezone
from django.utils.dateparse import parse_datetime

from controlplane.platform.format import one_line

MAX_VALUE = 200


class UnreadableFilterError(ValueError):
    """A condition is unreadable. The message names it and its expected form."""


@dataclass(frozen=True, slots=True)
class SearchFilter:
    """Conditions as texts, one per field of a subclass. An empty text matches everything."""

    @property
    def given(self) -> dict[str, str]:
        """Return the conditions that are set."""
        return {name: value for name, value in asdict(self).items() if value}

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Return the filter from query parameters. Unknown names are ignored, and values are truncated to MAX_VALUE."""
        return cls(**{field.name: one_line(str(values.get(field.name) or ""))[:MAX_VALUE] for field in fields(cls)})


def moment_of(name: str, text: str) -> datetime:
    """Parse an ISO 8601 date or time, in UTC unless it includes an offset. Raises UnreadableFilterError."""
    try:
        moment = parse_datetime(text if "T" in text or " " in text else f"{text}T00:00:00")
    except ValueError:
        moment = None
    if moment is None:
        raise UnreadableFilterError(f"{name} is not a time; write 2026-11-20T03:13, in UTC.")
    return moment if timezone.is_aware(moment) else timezone.make_aware(moment, timezone.get_default_timezone())
