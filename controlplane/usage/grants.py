"""Divides what is left of a budget between gateways, so that their parts never sum up to more.

A part is raised only by what is not held. A lowered part is held in full until its gateway reports that it enforces the
new state. Pure functions of plain values.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

Held = dict[str, list[list[int]]]
"""Journal → [state version, units left], oldest version first. The last one is the newest part."""
EVEN = 0.3
"""Share of what is left that is divided evenly, so that an idle gateway can admit its next request."""
WORTH_MOVING = 0.05
"""Share of the amount by which a part must change before it is divided again."""


def spend(held: Held, journal: str, units: int) -> None:
    """Subtract applied spending from the journal's parts."""
    for part in held.get(journal, ()):
        part[1] = max(0, part[1] - units)


def confirm(held: Held, journal: str, version: int) -> None:
    """Drop the parts that precede the newest one that the journal's gateway enforces."""
    parts = held.get(journal, [])
    while len(parts) > 1 and parts[1][0] <= version:
        parts.pop(0)


def divide(
    held: Held, left: int, amount: int, live: Collection[str], spent_by: Mapping[str, int], version: int
) -> bool:
    """Divide what is left between the live journals in proportion to their spending. Return whether a part changed."""
    changed = False
    for gone in held.keys() - set(live):
        del held[gone]
        changed = True
    total = sum(spent_by.get(journal, 0) for journal in live)
    bound = {journal: max((units for _, units in parts), default=0) for journal, parts in held.items()}
    newest = {journal: parts[-1][1] for journal, parts in held.items() if parts}
    free = max(0, left - sum(bound.values()))
    # Others may have exceeded their parts: then every part is lowered, however small the change is.
    tight = sum(newest.values()) > max(0, left)
    for journal in sorted(live):
        share = EVEN / len(live) + (1 - EVEN) * spent_by.get(journal, 0) / total if total else 1 / len(live)
        now = newest.get(journal, -1)
        wanted = max(0, left) if len(live) == 1 else int(max(0, left) * share)
        part = min(wanted, bound.get(journal, 0) + free)
        small = now > 0 and part > 0 and abs(part - now) < WORTH_MOVING * amount and len(live) > 1
        if part == now or (small and not tight):
            continue
        free -= max(0, part - bound.get(journal, 0))
        held.setdefault(journal, []).append([version, part])
        changed = True
    return changed
