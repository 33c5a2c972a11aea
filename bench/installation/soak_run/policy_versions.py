"""Check a soak's decisions against the published policy versions."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from bench.live.client_history import Decided


class Published(msgspec.Struct, frozen=True):
    """One publication. `begun_at` is in Unix seconds: no gateway can use the version before it."""

    number: int
    begun_at: float


def wrong_versions(decided: Sequence[Decided], published: Sequence[Published]) -> list[str]:
    """Return decisions by a version that was not published yet, and gateways whose version decreased."""
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
