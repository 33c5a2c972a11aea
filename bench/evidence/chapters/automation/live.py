"""Figures of the simulator compared with live processes and with another simulator."""

from __future__ import annotations

from itertools import permutations
from typing import Any

from bench.evidence.store import Result, load
from bench.live.paired_simulation import MOST_APART


def figures() -> dict[str, Any]:
    """Return the figures of the text."""
    live, peer = load("paired_simulation"), load("dynamo_replay")
    return {
        "live_command": live.command,
        "live": live.rows,
        "apart": apart(live),
        "most_apart": MOST_APART,
        "peer_command": peer.command,
        "peer": peer.rows,
        "differences": peer.settings["differences"],
    }


def apart(result: Result) -> float:
    """Return the largest error of the simulated ratio of two placements' times compared with the live one."""
    times = [(row["live_ttft_mean_s"], row["simulated_ttft_mean_s"]) for row in result.rows]
    worst: float = max(
        abs(simulated / other_simulated * other_live / live - 1)
        for (live, simulated), (other_live, other_simulated) in permutations(times, 2)
    )
    return worst
