"""CPU time of a process and its descendants, from /proc."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PARENT, _CPU, _WITH_ENDED = 1, slice(11, 13), slice(11, 15)
"""Fields in /proc/PID/stat after the name: the parent; user and system ticks, without and with ended children's."""


def cpu_s(pid: int) -> float:
    """Return user and system seconds of the process and its descendants, including ended ones."""
    return sum(sum(map(int, row[_WITH_ENDED])) for row in _family(pid).values()) / _TICKS_PER_S


def cpu_by_process(pid: int) -> dict[int, float]:
    """Return user and system seconds of the process and of each descendant, without ended children's."""
    return {member: sum(map(int, row[_CPU])) / _TICKS_PER_S for member, row in _family(pid).items()}


def _family(pid: int) -> dict[int, list[str]]:
    """Return the fields of the process and its descendants, parents first."""
    fields = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                text = (folder / "stat").read_text()
            except OSError:
                # It ended meanwhile; its ticks are now among its parent's ended children.
                continue
            fields[int(folder.name)] = text.rpartition(")")[2].split()
    family = [pid]
    for member in family:
        family += [child for child, row in fields.items() if int(row[_PARENT]) == member]
    return {member: fields[member] for member in family}
