"""How far a publish has come, in a sentence that the page and its script share."""

from __future__ import annotations

from typing import Any

from controlplane.platform.format import NARROW_SPACE
from controlplane.policies.reading import PolicyStanding, version_of
from web.policies.rollout import Reach, version_watch


def reach_of(standing: PolicyStanding, number: int) -> dict[str, Any] | None:
    """Return whether version `number` runs everywhere, and the sentence about it; None where it never was live."""
    version = standing.live if standing.live_number == number else version_of(standing.policy, number)
    if version is None or version.published_at is None:
        return None
    if standing.live_number != number:
        live = f"v{standing.live_number}" if standing.live_number else "no version"
        return {"number": number, "done": True, "overtaken": True, "words": f"v{number} is not live: {live} is."}
    slugs = [pool.slug for pool in standing.pools]
    reach = version_watch().reach(slugs, number, version.published_at.timestamp())
    return {"number": number, "done": reach.everywhere, "overtaken": False, "words": _words(number, reach, bool(slugs))}


def _words(number: int, reach: Reach, has_pools: bool) -> str:
    if not has_pools:
        return f"v{number} is live; no pool uses this policy yet."
    if reach.gateways == 0:
        return f"v{number} is published; no gateway has reported its version yet."
    after = f" after {reach.after_s:.1f}{NARROW_SPACE}s" if reach.everywhere and reach.after_s is not None else ""
    return f"v{number} is live on {reach.reached} of {reach.gateways} gateways{after}."
