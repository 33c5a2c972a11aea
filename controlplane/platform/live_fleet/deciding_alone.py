"""Finds gateways that decide alone about a shared pool, so that each knows only its own requests."""

from __future__ import annotations

from collections.abc import Iterable

from controlplane.platform.format import some_names
from gateway.contracts.fleet_sample import PoolRole

LONG_S = 10.0
"""Minimum duration of a reported disagreement. An election takes only two seconds."""
_NAMED = 4
REMEDY = "Let the gateways reach each other's HEADWAY_PEER_LISTEN, and Redis."


def deciding_alone(roles: Iterable[PoolRole], now: float) -> list[PoolRole]:
    """Return the roles of gateways that, at unix second `now`, have decided alone for LONG_S."""
    return [role for role in roles if role.decides_alone and now - role.since > LONG_S]


def named(alone: Iterable[PoolRole]) -> str:
    """Return the names of the first gateways, with each reason."""
    gateways: dict[str, list[str]] = {}
    for item in alone:
        gateways.setdefault(item.reason, []).append(item.gateway)
    return "; ".join(f"{some_names(names, _NAMED)} ({reason})" for reason, names in gateways.items())
