"""Reads and changes one value of a JSON document by its path, without modifying the document."""

from __future__ import annotations

from typing import Any

from controlplane.policies.document.schema import ABSENT, Absent, Path


def value_at(document: Any, path: Path) -> Any:
    """Return the value at the path; ABSENT if the document lacks the path."""
    for name in path:
        if not isinstance(document, dict) or name not in document:
            return ABSENT
        document = document[name]
    return document


def with_value(document: Any, path: Path, value: Any) -> Any:
    """Return a copy with the value at the path. ABSENT removes it, and missing objects on the path are created."""
    if not path:
        return value
    inner = document if isinstance(document, dict) else {}
    name, rest = path[0], path[1:]
    if isinstance(value, Absent) and name not in inner:
        return inner
    changed = with_value(inner.get(name), rest, value) if rest else value
    kept = {key: item for key, item in inner.items() if key != name or not isinstance(changed, Absent)}
    return kept if isinstance(changed, Absent) else {**kept, name: changed}


def same_value(left: Any, right: Any) -> bool:
    """Return whether two values are equal in JSON: 8 and 8.0 are, 1 and true are not."""
    if isinstance(left, Absent) or isinstance(right, Absent):
        return left is right
    if isinstance(left, bool) or isinstance(right, bool):
        return isinstance(left, bool) and isinstance(right, bool) and left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same_value(left[name], right[name]) for name in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same_value, left, right))
    return bool(left == right)
