"""What differs between two JSON values, line by line, for people to read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Any

from web.live.wording import count

MAX_LINES = 2_000
"""More lines of one value are cut; a policy document has about a hundred."""
_AROUND = 2
"""Equal lines shown beside a change; more are folded."""
_LEAST_FOLDED = 3


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One line: same, added, removed, or folded (a run of equal lines, `text` says how many).

    `head`, `changed` and `tail` are the line's text in three parts, of which the middle one differs
    from the line's counterpart.
    """

    kind: str
    old: int | None
    new: int | None
    head: str
    changed: str = ""
    tail: str = ""


def record_diff(before: Any, after: Any) -> list[DiffLine]:
    """Return the lines of both values; None is a value that is not there."""
    old, new = _lines(before), _lines(after)
    lines: list[DiffLine] = []
    for verb, old_from, old_to, new_from, new_to in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if verb == "equal":
            lines += [
                DiffLine("same", old_from + step + 1, new_from + step + 1, text)
                for step, text in enumerate(old[old_from:old_to])
            ]
        else:
            lines += _replaced(old[old_from:old_to], new[new_from:new_to], old_from, new_from)
    return list(_folded(lines))


def _lines(value: Any) -> list[str]:
    if value is None:
        return []
    lines = json.dumps(value, indent=2, ensure_ascii=False).splitlines()
    return lines if len(lines) <= MAX_LINES else [*lines[:MAX_LINES], f"… {count(len(lines) - MAX_LINES, 'more line')}"]


def _replaced(old: Sequence[str], new: Sequence[str], old_from: int, new_from: int) -> list[DiffLine]:
    """Return removed and added lines; where both sides have as many, in pairs that show what differs in them."""
    removed: list[DiffLine] = []
    added: list[DiffLine] = []
    paired = len(old) == len(new)
    for step, (was, becomes) in enumerate(zip_longest(old, new)):
        head, tail = _common(was, becomes) if paired else (0, 0)
        if was is not None:
            removed.append(_part("removed", was, head, tail, old=old_from + step + 1))
        if becomes is not None:
            added.append(_part("added", becomes, head, tail, new=new_from + step + 1))
    if paired:
        return [line for pair in zip(removed, added, strict=True) for line in pair]
    return removed + added


def _part(kind: str, text: str, head: int, tail: int, *, old: int | None = None, new: int | None = None) -> DiffLine:
    end = len(text) - tail
    if head == tail == 0:
        return DiffLine(kind, old, new, text)
    return DiffLine(kind, old, new, text[:head], text[head:end], text[end:])


def _common(one: str, other: str) -> tuple[int, int]:
    """Return how many characters two lines share at their start and at their end."""
    shortest = min(len(one), len(other))
    head = 0
    while head < shortest and one[head] == other[head]:
        head += 1
    tail = 0
    while tail < shortest - head and one[-1 - tail] == other[-1 - tail]:
        tail += 1
    return head, tail


def _folded(lines: Sequence[DiffLine]) -> Iterator[DiffLine]:
    changes = [place for place, line in enumerate(lines) if line.kind != "same"]
    if not changes:
        yield from lines
        return
    shown = {near for place in changes for near in range(place - _AROUND, place + _AROUND + 1)}
    place = 0
    while place < len(lines):
        end = place
        while end < len(lines) and end not in shown:
            end += 1
        if end - place >= _LEAST_FOLDED:
            yield DiffLine("folded", None, None, count(end - place, "equal line"))
            place = end
        else:
            end = max(end, place + 1)
            yield from lines[place:end]
            place = end
