"""The model of policy versions that a soak's decisions are checked against."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from bench.live.client_history import Decided


class Published(msgspec.Struct, frozen=True):
    """One publication. `begun_at` in unix seconds: no gateway can use the version before."""

    number: int
    begun_at: float


def wrong_versions(decided: Sequence[Decided], published: Sequence[Published]) -> list[str]:
    """Return the decisions by a version that was not published yet, and gateways whose version went back."""
    begun_at = {item.number: item.begun_at for item in published}
    newest: dict[str, Decided] = {}
    wrong = []
    # By number within one moment: clocks may give two decisions the same time.
    for item in sorted(decided, key=lambda one: (one.decided_at, one.number)):
        if begun_at.get(item.number, float("inf")) > item.decided_at:
            wrong.append(f"{item.gateway} decided by version {item.number} before it was published")
        before = newest.setdefault(item.gateway, item)
        if item.number < before.number:
            wrong.append(f"{item.gateway} went back from version {before.number} to {item.number}")
        newest[item.gateway] = item
    return wrong
