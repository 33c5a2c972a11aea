"""Generated results of two arms, slice by slice."""

from __future__ import annotations

import math
from random import Random

from planning.trials.arm_window import ArmTally, ArmWindow
from planning.trials.comparison import ArmSlice

SLO_S = 1.0


def window(
    rng: Random, requests: int, median_s: float, *, failing: float = 0.0, spread: float = 0.5, tokens: float = 2000.0
) -> ArmWindow:
    """Return requests with log-normal times to first token that grow with prompts of around `tokens`."""
    tally = ArmTally()
    # Lengths have draws of their own, so that they change no others.
    state = rng.getstate()[1]
    sizes = Random(state[0] ^ state[-1])
    for _ in range(requests):
        tally.count("ended")
        tally.count("judged")
        if rng.random() < failing:
            tally.count("failed")
            continue
        longer = math.exp(sizes.gauss(0.0, 0.7))
        ttft_s = median_s * longer * tokens / 2000.0 * math.exp(rng.gauss(0.0, spread))
        tally.answered(ttft_s, round(tokens * longer))
        tally.count("on_time", int(ttft_s <= SLO_S))
    return tally.window()


def slices(
    seed: int, count: int, base: int, tried: int, *, slower: float = 1.0, failing: float = 0.0, bursts: bool = True
) -> tuple[ArmSlice, ...]:
    """Return `count` slices; bursts make single slices of both arms slow, as a full queue does."""
    rng = Random(seed)
    made = []
    for _ in range(count):
        median_s = 0.4 * (4.0 if bursts and rng.random() < 0.15 else 1.0)
        ours = rng.randint(0, 2 * tried)
        made.append(ArmSlice(window(rng, base, median_s), window(rng, ours, median_s * slower, failing=failing)))
    return tuple(made)
