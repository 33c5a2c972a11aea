"""The three-way comparison of one object: as files applied it last, as it is stored, and as files want it.

Pure: values by path in, values by path out. A field in the files wins. A field that left the files gets its default.
Fields that were never in the files are unchanged. A person's change of a managed field is a conflict.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from controlplane.policies.document.paths import same_value
from controlplane.policies.document.schema import ABSENT, Path

Values = Mapping[Path, Any]


@dataclass(frozen=True, slots=True)
class ChangedField:
    """One field whose value changes. A value is ABSENT if that side lacks it."""

    path: Path
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class FieldConflict:
    """A field that files want to change, and that another change has set since they applied it."""

    path: Path
    applied: Any
    """The value that was applied last, by these files or by another manager."""
    stored: Any
    wanted: Any
    manager: str = ""
    """The other manager of the field; empty: a person or program changed it."""


@dataclass(frozen=True, slots=True)
class ThreeWay:
    """The three sides of one object, and what other managers manage in it (manager → fields as applied)."""

    applied: Values
    stored: Values
    wanted: Values
    others: Mapping[str, Values]

    def to_set(self, default: Callable[[Path], Any]) -> dict[Path, Any]:
        """Return the fields to set; ABSENT: remove it. `default` returns the value of a field that left the files."""
        left = {path: default(path) for path in self.applied if path not in self.wanted and self._is_ours(path)}
        return {path: value for path, value in {**left, **self.wanted}.items() if not self._is_stored(path, value)}

    def changed(self, after: Values) -> list[ChangedField]:
        """Return the fields whose stored values differ after the change."""
        paths = [*self.stored, *(path for path in after if path not in self.stored)]
        both = [(path, self.stored.get(path, ABSENT), after.get(path, ABSENT)) for path in paths]
        return [ChangedField(*field) for field in both if not same_value(field[1], field[2])]

    def conflicts(self, after: Values) -> list[FieldConflict]:
        """Return the conflicts of a change that stored `after`."""
        conflicts = []
        for field in self.changed(after):
            if field.path not in self.wanted:
                continue
            if field.path in self.applied:
                if not self._is_stored(field.path, self.applied[field.path]):
                    conflicts.append(FieldConflict(field.path, self.applied[field.path], field.before, field.after))
            elif manager := self._manager_of(field.path):
                conflicts.append(FieldConflict(field.path, field.before, field.before, field.after, manager))
        return conflicts

    def _is_ours(self, path: Path) -> bool:
        """Return whether only these files have set the field as it is."""
        return self._is_stored(path, self.applied[path]) and not self._manager_of(path)

    def _manager_of(self, path: Path) -> str:
        """Return the other manager whose value is stored; empty if there is none."""
        setting = (
            name for name, fields in self.others.items() if path in fields and self._is_stored(path, fields[path])
        )
        return next(setting, "")

    def _is_stored(self, path: Path, value: Any) -> bool:
        return same_value(self.stored.get(path, ABSENT), value)
