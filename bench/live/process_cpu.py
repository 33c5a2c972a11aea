"""CPU time of a process and its descendants, from /proc."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PARENT, _CPU = 1, slice(11, 15)
"""Fields in /proc/PID/stat after the name: the parent, and user and system ticks, including those of ended children."""


def cpu_s(pid: int) -> float:
    """Return user and system seconds of the process and its descendants, including ended ones."""
    fields = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                text = (folder / "stat").read_text()
            except OSError:
                # It ended meanwhile; its ticks are now among its parent's ended children.
                continue
            fields[int(folder.name)] = text.rpartition(")")[2].split()
    family, ticks = [pid], 0
    for member in family:
        ticks += sum(map(int, fields[member][_CPU]))
        family += [child for child, row in fields.items() if int(row[_PARENT]) == member]
    return ticks / _TICKS_PER_S
