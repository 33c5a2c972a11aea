"""Regions and the links between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations
from random import Random

from simulator.link import Link
from simulator.virtual_clock import VirtualClock

REGIONS = ("us", "eu", "asia")
INSIDE_S = 0.002
"""Round trip within a region (s)."""
ROUND_TRIPS_S = {("us", "eu"): 0.09, ("us", "asia"): 0.16, ("eu", "asia"): 0.2}
ELSEWHERE_S = 0.1
"""Round trip between regions that are not in the study (s)."""


class RegionNetwork:
    """Carries messages over links by sender and receiver; the two directions can differ.

    A `loss` is the share of messages between regions that never arrive. Mutable: the draws of lost messages.
    """

    def __init__(
        self, clock: VirtualClock, links: dict[tuple[str, str], Link], *, loss: float = 0.0, seed: int = 0
    ) -> None:
        self._clock, self._links, self._loss, self._rng = clock, links, loss, Random(f"{seed} losses")

    def delay(self, sender: str, receiver: str) -> float:
        """Return the delay of a message (s)."""
        return self._links[sender, receiver].latency_s

    def send(self, sender: str, receiver: str, act: Callable[..., None], *args: object) -> bool:
        """Call `act` with the arguments when the message arrives; return False if it is lost."""
        if self._loss and sender != receiver and self._rng.random() < self._loss:
            return False
        self._clock.at(self._links[sender, receiver].carry(0, self._clock.now), act, *args)
        return True


def links(scale: float = 1.0, regions: Sequence[str] = REGIONS) -> dict[tuple[str, str], Link]:
    """Return the links of the study or of other regions, with all round trips scaled; a scale of 0 means no delay."""
    ways = {(region, region): Link(latency_s=INSIDE_S / 2 * scale) for region in regions}
    for pair in permutations(regions, 2):
        round_trip_s = ROUND_TRIPS_S.get(pair) or ROUND_TRIPS_S.get(pair[::-1]) or ELSEWHERE_S
        ways[pair] = Link(latency_s=round_trip_s / 2 * scale)
    return ways
