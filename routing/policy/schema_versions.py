"""Schemas of one kind of document: the one before the program's is upgraded when read, all others are rejected.

The upgrader works on a copy, so stored versions, files and peers may still speak the schema before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

FIELD = "schema_version"

Upgrader = Callable[[dict[str, Any]], dict[str, Any]]
"""Takes a document of the schema before and returns it in the current one; `schema_version` is written for it."""


class SchemaError(ValueError):
    """This program cannot read the document's schema; the message says what to do."""


@dataclass(frozen=True, slots=True)
class SchemaLine:
    """The schema that this program writes, and how the one before becomes it."""

    what: str
    """What the documents are, for errors."""
    current: int
    upgrade: Upgrader | None = None
    """None: no schema before this one is read. Raising `current` comes with one."""

    def upgraded(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return a copy in the current schema; raises SchemaError.

        Without `schema_version` it is taken as current. What names no schema at all is left to the validation.
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
            # Upgraders read what an earlier program has validated; people can write anything.
            raise SchemaError(f"its schema_version is {version}, but it does not match that schema") from error
