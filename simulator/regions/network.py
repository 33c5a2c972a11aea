"""Regions and the network delays between them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import msgspec

REGIONS = ("us", "eu", "asia")
INSIDE_S = 0.002
"""Round trip within a region (s)."""
ROUND_TRIPS_S = {("us", "eu"): 0.09, ("us", "asia"): 0.16, ("eu", "asia"): 0.2}
ELSEWHERE_S = 0.1
"""Round trip between regions that are not in the study (s)."""


class Network(msgspec.Struct, frozen=True):
    """One-way delays (s) by sender and receiver; the two directions can differ."""

    one_way_s: dict[tuple[str, str], float]

    def delay(self, sender: str, receiver: str) -> float:
        """Return the delay of a message (s)."""
        return self.one_way_s[sender, receiver]


def network(scale: float = 1.0, regions: Sequence[str] = REGIONS) -> Network:
    """Return the network of the study or of other regions, with all round trips scaled; a scale of 0 means no delay."""
    ways = {(region, region): INSIDE_S / 2 * scale for region in regions}
    for pair in permutations(regions, 2):
        round_trip_s = ROUND_TRIPS_S.get(pair) or ROUND_TRIPS_S.get(pair[::-1]) or ELSEWHERE_S
        ways[pair] = round_trip_s / 2 * scale
    return Network(ways)
