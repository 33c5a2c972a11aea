"""Documents of one schema through the program's versions: the one before this is read, a newer one is refused.

A program of schema N reads documents of N−1 by upgrading a copy, so that an installation can be upgraded
while stored versions, files and peers still speak N−1. What is stored stays as it was written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

FIELD = "schema_version"

Upgrader = Callable[[dict[str, Any]], dict[str, Any]]
"""Takes a document of its schema and returns it in the next one; `schema_version` is written for it."""


class SchemaError(ValueError):
    """The document is of a schema that this program does not read; the message says what to do."""


@dataclass(frozen=True, slots=True)
class SchemaLine:
    """The schemas of one kind of document: the one that this program writes, and how older ones become it."""

    what: str
    """What the documents are, for errors."""
    current: int
    upgraders: Mapping[int, Upgrader] = field(default_factory=dict)
    """By the schema that each takes. The one of `current` − 1 belongs here as soon as there is such a schema."""
    idle: tuple[str, ...] = ()
    """Dotted paths of settings that documents of `current` may hold and that nothing reads; they are left out."""

    @property
    def oldest(self) -> int:
        """The oldest schema from which upgraders lead to the current one."""
        oldest = self.current
        while oldest - 1 in self.upgraders:
            oldest -= 1
        return oldest

    def upgraded(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return the document in the current schema, without its idle settings; it stays as it is itself.

        Without `schema_version` it is taken as current. Raises SchemaError for a newer schema and for
        one older than `oldest`; what names no schema at all is left for the validation to tell.
        """
        version = document.get(FIELD, self.current)
        if not isinstance(version, int) or isinstance(version, bool) or version == self.current:
            return _without(document, self.left_out(document))
        if version < min(1, self.oldest):
            return dict(document)
        self._check(version)
        changed = deepcopy(dict(document))
        try:
            for step in range(version, self.current):
                changed = {**self.upgraders[step](changed), FIELD: step + 1}
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            # Upgraders read what an earlier program has validated; people can write anything.
            raise SchemaError(f"{version} is said to be its schema, but it does not read like one of these") from error
        return _without(changed, self.left_out(changed))

    def left_out(self, document: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the idle settings that the document holds."""
        return tuple(path for path in self.idle if _holder(document, path) is not None)

    def _check(self, version: int) -> None:
        if version > self.current:
            raise SchemaError(
                f"{version} is newer than {self.current}, the schema of {self.what} that this program reads; "
                f"upgrade this program, or use a document written by version {self.current}"
            )
        if version < self.oldest:
            raise SchemaError(
                f"{version} is older than {self.oldest}, the oldest schema of {self.what} that this program reads; "
                "upgrade by way of the program versions between, or write the document anew"
            )


def _holder(document: Mapping[str, Any], path: str) -> dict[str, Any] | None:
    """Return the object in which the path's last name stands; None where it does not."""
    *above, last = path.split(".")
    found: Any = document
    for name in above:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found if isinstance(found, dict) and last in found else None


def _without(document: Mapping[str, Any], paths: tuple[str, ...]) -> dict[str, Any]:
    kept = dict(document) if not paths else deepcopy(dict(document))
    for path in paths:
        holder = _holder(kept, path)
        if holder is not None:
            del holder[path.rpartition(".")[2]]
    return kept
