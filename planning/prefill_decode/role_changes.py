"""Roles of added and removed engines: the machine tide (Mooncake §5.1).

When a fleet with roles grows, the busier side gets the new engines. When it shrinks, the less busy side loses them.
Each role keeps at least one engine.
"""

from __future__ import annotations

from collections.abc import Sequence

from planning.facts.fleet_facts import ACTIVE, STARTING, EngineObservation, Role, known

DECODE: Role = "decode"
PREFILL: Role = "prefill"
MIXED: Role = "mixed"


def counts_of(engines: Sequence[EngineObservation]) -> dict[Role, int]:
    """Return how many engines serve or start in each role."""
    counts: dict[Role, int] = {MIXED: 0, PREFILL: 0, DECODE: 0}
    for engine in engines:
        if engine.lifecycle in (ACTIVE, STARTING):
            counts[engine.role] += 1
    return counts


def roles_to_add(count: int, engines: Sequence[EngineObservation], imbalance: float | None) -> tuple[Role, ...]:
    """Return the roles of `count` new engines. `imbalance` is f_im: above 1, decode is the busier side.

    A pool without roles gets mixed engines. Each added engine is assumed to relieve its side in proportion.
    """
    counts = counts_of(engines)
    if not counts[PREFILL] and not counts[DECODE]:
        return (MIXED,) * count
    factor = known(imbalance) or 1.0
    added: list[Role] = []
    for _ in range(count):
        if not counts[PREFILL] or not counts[DECODE]:
            role = PREFILL if not counts[PREFILL] else DECODE
        elif factor == 1.0:
            role = PREFILL if counts[PREFILL] <= counts[DECODE] else DECODE
        else:
            role = DECODE if factor > 1.0 else PREFILL
        before = counts[role]
        counts[role] += 1
        # Each engine added is assumed to relieve its side in proportion.
        ratio = before / counts[role]
        factor *= ratio if role == DECODE else 1.0 / ratio if ratio else 1.0
        added.append(role)
    return tuple(added)


def role_to_drain(engines: Sequence[EngineObservation], imbalance: float | None) -> Role | None:
    """Return the role that loses an engine, mixed first. None if the pool has no roles."""
    counts = counts_of(engines)
    if not counts[PREFILL] and not counts[DECODE]:
        return None
    # A mixed engine leaves both roles in place.
    if counts[MIXED]:
        return MIXED
    lighter = PREFILL if (known(imbalance) or 1.0) > 1.0 else DECODE
    other = DECODE if lighter == PREFILL else PREFILL
    return lighter if counts[lighter] > 1 else other
