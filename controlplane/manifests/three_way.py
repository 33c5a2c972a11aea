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
    """One field whose value changes. None: that side lacks it."""

    path: Path
    before: Any
    after: Any
    in_conflict: bool = False
    """Whether `before` is not what these files applied: another change or manager set it."""
    applied: Any = None
    """In a conflict, the value that was applied last."""
    by: str = ""
    """In a conflict, who set `before`; empty: unknown."""


@dataclass(frozen=True, slots=True)
class ThreeWay:
    """The three sides of one object, and what other managers manage in it (manager → fields as applied)."""

    applied: Values
    stored: Values
    wanted: Values
    others: Mapping[str, Values]

    def to_set(self, default: Callable[[Path], Any]) -> dict[Path, Any]:
        """Return the fields to set; ABSENT: remove it. `default` returns the value of a field that left the files."""
        left = [path for path in self.applied if path not in self.wanted and not self._set_by_others(path)]
        values = {path: default(path) for path in left if not self._manager_of(path)} | dict(self.wanted)
        return {path: value for path, value in values.items() if not self._is_stored(path, value)}

    def changed(self, after: Values) -> list[ChangedField]:
        """Return the fields whose stored values differ after the change, and which of them are in conflict."""
        both = {path: (self.stored.get(path, ABSENT), after.get(path, ABSENT)) for path in {**self.stored, **after}}
        return [self._changed(path, *sides) for path, sides in both.items() if not same_value(*sides)]

    def _changed(self, path: Path, *sides: Any) -> ChangedField:
        before, after = (None if side is ABSENT else side for side in sides)
        if path in self.wanted and path in self.applied and self._set_by_others(path):
            return ChangedField(path, before, after, True, self.applied[path])
        if path in self.wanted and path not in self.applied and (manager := self._manager_of(path)):
            return ChangedField(path, before, after, True, before, manager)
        return ChangedField(path, before, after)

    def _set_by_others(self, path: Path) -> bool:
        return not self._is_stored(path, self.applied[path])

    def _manager_of(self, path: Path) -> str:
        """Return the other manager whose value is stored; empty if there is none."""
        setting = (
            name for name, fields in self.others.items() if path in fields and self._is_stored(path, fields[path])
        )
        return next(setting, "")

    def _is_stored(self, path: Path, value: Any) -> bool:
        return same_value(self.stored.get(path, ABSENT), value)
