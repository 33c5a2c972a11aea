"""Merges two changes of the same policy. One-sided changes are merged automatically; the user resolves conflicts.

Pure: documents in, documents out. If a side changed the name of a rule (placement, queue order), the whole rule is
merged as one value, because parameters belong to their rule. Otherwise, parameters are merged individually.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from controlplane.policies.document.paths import same_value, value_at, with_value
from controlplane.policies.document.schema import ABSENT, Absent, Path, path_text
from controlplane.policies.document.text import ordered
from routing.registry import STAGES

BASE, THEIRS, MINE, BOTH, CONFLICT = "base", "theirs", "mine", "both", "conflict"


class UnresolvedConflictError(ValueError):
    """Both sides changed the same paths, and no choice was made. `paths` lists them."""

    def __init__(self, paths: tuple[str, ...]) -> None:
        self.paths = paths
        super().__init__(f"choose theirs or mine for {', '.join(paths)}")


@dataclass(frozen=True, slots=True)
class ChangedEntry:
    """One path that at least one side changed. A value is ABSENT if the document lacks it."""

    path: Path
    base: Any
    theirs: Any
    mine: Any

    @property
    def side(self) -> str:
        """Return the side that changed it: THEIRS, MINE, BOTH if both made the same change, or CONFLICT."""
        if same_value(self.theirs, self.mine):
            return BOTH
        if same_value(self.base, self.mine):
            return THEIRS
        return MINE if same_value(self.base, self.theirs) else CONFLICT

    def value(self, choice: str) -> Any:
        """Return the value of a side. BOTH and CONFLICT are not valid sides."""
        return {BASE: self.base, THEIRS: self.theirs, MINE: self.mine}[choice]


def changed_entries(base: Any, theirs: Any, mine: Any) -> tuple[ChangedEntry, ...]:
    """Return every changed path, in the form's order."""
    return tuple(_changed((), ordered(base), ordered(theirs), ordered(mine)))


def merged(base: Any, theirs: Any, mine: Any, choices: Mapping[str, str] | None = None) -> Any:
    """Return the document with both changes.

    `choices` maps paths to BASE, THEIRS, or MINE and overrides the automatic merge. Raises UnresolvedConflictError with
    every conflict without a choice.
    """
    choices = choices or {}
    entries = changed_entries(base, theirs, mine)
    open_paths = [path_text(entry.path) for entry in entries if entry.side == CONFLICT]
    if unresolved := tuple(path for path in open_paths if choices.get(path) not in (BASE, THEIRS, MINE)):
        raise UnresolvedConflictError(unresolved)
    document = base
    for entry in entries:
        chosen = choices.get(path_text(entry.path))
        side = chosen if chosen in (BASE, THEIRS, MINE) else (THEIRS if entry.side in (THEIRS, BOTH) else MINE)
        document = with_value(document, entry.path, entry.value(side))
    return ordered(document)


def changes_between(before: Any, after: Any) -> tuple[ChangedEntry, ...]:
    """Return the paths in which two documents differ. `base` is the old value, `mine` the new one."""
    return changed_entries(before, before, after)


def _changed(path: Path, base: Any, theirs: Any, mine: Any) -> list[ChangedEntry]:
    if same_value(base, theirs) and same_value(base, mine):
        return []
    if not all(isinstance(item, dict) for item in (base, theirs, mine)) or _is_one_value(path, base, theirs, mine):
        return [ChangedEntry(path, base, theirs, mine)]
    names = {**mine, **theirs, **base} if path else ordered({**mine, **theirs, **base})
    return [
        entry
        for name in names
        for entry in _changed((*path, name), *(item.get(name, ABSENT) for item in (base, theirs, mine)))
    ]


def _is_one_value(path: Path, *sides: Any) -> bool:
    """Return whether a stage's rule differs between the sides."""
    if len(path) != 1 or path[0] not in STAGES:
        return False
    names = [value_at(side, ("name",)) for side in sides]
    return any(isinstance(name, Absent) or not same_value(name, names[0]) for name in names)
