"""Summarize alternating rounds of two products on a shared machine: the quietest round of each, and their median."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

LEAST_ROUNDS = 5


def quietest_and_median(rounds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the minimum of each time over all rounds by name, and its median as `<name>_median`.

    Other work on the machine only ever adds time, and adds much to one round and nothing to the next, so a single round
    proves nothing. Raises ValueError for fewer than LEAST_ROUNDS rounds.
    """
    if len(rounds) < LEAST_ROUNDS:
        raise ValueError(f"{len(rounds)} rounds are fewer than the {LEAST_ROUNDS} that two products are compared by")
    figures: dict[str, float] = {}
    for name in rounds[0]:
        times = [round_[name] for round_ in rounds]
        figures[name], figures[f"{name}_median"] = min(times), statistics.median(times)
    return figures


def ratios(figures: Mapping[str, float], ours: str, theirs: str, name: str) -> dict[str, float]:
    """Return the ratio of our time to theirs as `name`, for the quietest rounds, and as `<name>_median`."""
    return {
        name: figures[ours] / figures[theirs],
        f"{name}_median": figures[f"{ours}_median"] / figures[f"{theirs}_median"],
    }
