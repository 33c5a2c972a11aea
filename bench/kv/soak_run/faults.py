"""The schedule of faults of nodes and clients, derived from the seed before the start."""

from __future__ import annotations

import random

import msgspec

KINDS = {"kill": 5, "stop": 2, "fill": 2, "flip": 4, "cut": 4, "kill_client": 2}
"""Weight of each fault in the random choice."""
PAUSE_S = (0.3, 1.5)
LASTS_S = {"kill": (0.0, 1.0), "stop": (0.1, 4.0), "fill": (0.5, 4.0), "kill_client": (0.0, 0.5)}
"""How long a node or client is down, or a disk full. A stop can outlast a lease and a client's timeout."""
UNDONE_BY = {"kill": "start", "stop": "go_on", "fill": "free", "kill_client": "start_client"}

MOST_AMOUNT = 40


class Fault(msgspec.Struct, frozen=True, order=True):
    """One fault, at a time since the start."""

    at_s: float
    kind: str
    target: int
    """Number of the node, or of the client."""
    amount: int = 0
    """Bits to flip; connections to cut later."""


def schedule(seed: int, seconds: float, nodes: int, clients: int) -> list[Fault]:
    """Return all faults in order, each with its end. All have ended by `seconds`."""
    rng, at_s, faults = random.Random(f"faults {seed}"), 1.0, list[Fault]()
    away: dict[tuple[str, int], float] = {}
    while (at_s := at_s + rng.uniform(*PAUSE_S)) < seconds:
        kind = rng.choices(list(KINDS), list(KINDS.values()))[0]
        target = rng.randrange(clients if kind == "kill_client" else nodes)
        amount, lasts_s = rng.randrange(1, MOST_AMOUNT), rng.uniform(*LASTS_S.get(kind, (0.0, 0.0)))
        if kind in UNDONE_BY:
            if away.get((kind, target), 0.0) >= at_s:
                continue
            away[kind, target] = min(at_s + lasts_s, seconds)
            faults.append(Fault(away[kind, target], UNDONE_BY[kind], target))
        faults.append(Fault(at_s, kind, target, amount))
    return sorted(faults)
