"""Schema versions of one kind of document: the previous one is upgraded when read, all others are rejected.

The upgrade works on a copy, so stored versions, files, and peers can still use the previous schema.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

FIELD = "schema_version"

Upgrader = Callable[[dict[str, Any]], dict[str, Any]]
"""Converts a document of the previous schema to the current one, except for `schema_version`."""
Notes = Callable[[Mapping[str, Any]], list[str]]
"""Returns how the upgrade of a document of the previous schema changes its effect, as sentences."""


class SchemaError(ValueError):
    """The document's schema is not supported. The message states the remedy."""


@dataclass(frozen=True, slots=True)
class SchemaLine:
    """The schema that this program writes, and the upgrade from the previous one."""

    what: str
    """Kind of document, for error messages."""
    current: int
    upgrade: Upgrader | None = None
    """None if the previous schema is not read. Increasing `current` requires an upgrade."""
    notes: Notes | None = None

    def is_previous(self, document: Mapping[str, Any]) -> bool:
        """Return whether the document is of the previous schema."""
        return bool(document.get(FIELD, self.current) == self.current - 1)

    def upgrade_notes(self, document: Mapping[str, Any]) -> list[str]:
        """Return how upgrading the document changes its effect; empty for a document of the current schema."""
        return self.notes(document) if self.notes is not None and self.is_previous(document) else []

    def upgraded(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return a copy in the current schema. Raises SchemaError.

        A document without `schema_version` is assumed to be current. Validation handles a document that names no
        schema.
        """
        version, copy = document.get(FIELD, self.current), dict(document)
        if not isinstance(version, int) or isinstance(version, bool) or version == self.current:
            return copy
        if version > self.current:
            raise SchemaError(
                f"{version} is newer than {self.current}, the schema of {self.what} that this program reads; "
                f"upgrade this program, or use a document written by version {self.current}"
            )
        if self.upgrade is None or version < self.current - 1:
            raise SchemaError(f"{version} is too old: this program reads {self.what} of schema {self.current}")
        try:
            return {**self.upgrade(deepcopy(copy)), FIELD: self.current}
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            # Upgraders read documents that an earlier program has validated; people can write anything.
            raise SchemaError(f"its schema_version is {version}, but it does not match that schema") from error
