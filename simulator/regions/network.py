"""Regions and how long messages take between them."""

from __future__ import annotations

import msgspec

REGIONS = ("us", "eu", "asia")
INSIDE_S = 0.002
"""Round trip inside a region (s)."""
ROUND_TRIPS_S = {("us", "eu"): 0.09, ("us", "asia"): 0.16, ("eu", "asia"): 0.2}


class Network(msgspec.Struct, frozen=True):
    """One-way delays (s) by sender and receiver; the two ways need not be equal."""

    one_way_s: dict[tuple[str, str], float]

    def delay(self, sender: str, receiver: str) -> float:
        """Return how long a message takes (s)."""
        return self.one_way_s[sender, receiver]


def network(scale: float = 1.0) -> Network:
    """Return the study's network with all round trips scaled; 0 is a network without delay."""
    ways = {(region, region): INSIDE_S / 2 * scale for region in REGIONS}
    for (one, other), round_trip_s in ROUND_TRIPS_S.items():
        ways[one, other] = ways[other, one] = round_trip_s / 2 * scale
    return Network(ways)
