"""The part of the fleet that a person can see: a set of pools, and samples, columns, and markers limited to it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

import msgspec

from controlplane.fleet.visibility import visible_pools
from controlplane.history.annotation import Annotation
from controlplane.history.bucket import Column
from controlplane.history.roster import HistoryRoster
from controlplane.platform.actor import Actor
from controlplane.platform.role import Role
from controlplane.platform.roles import may
from gateway.contracts.fleet_sample import FleetSample

Scope = frozenset[str] | None
"""Slugs of the pools that a person can see; None for all pools, future ones included."""
NOTHING: Scope = frozenset()


def scope_of(actor: Actor) -> Scope:
    """Return the scope of what the actor can see."""
    if may(actor, Role.VIEWER):
        return None
    return frozenset(visible_pools(actor).values_list("slug", flat=True))


def scoped_sample(sample: FleetSample | None, scope: Scope) -> FleetSample | None:
    """Return the sample without the engines and pools outside the scope."""
    if sample is None or scope is None:
        return sample
    return msgspec.structs.replace(
        sample,
        engines=tuple(engine for engine in sample.engines if engine.pool_id in scope),
        pools=tuple(pool for pool in sample.pools if pool.pool_id in scope),
    )


def scoped_markers(markers: Iterable[Annotation], scope: Scope) -> list[Annotation]:
    """Return the markers of the pools in scope."""
    return [marker for marker in markers if scope is None or marker.pool_id in scope]


def scoped_column(column: Column, scope: Scope) -> Column:
    """Return the column without the engines and pools outside the scope."""
    if scope is None:
        return column
    roster = _scoped_roster(column.roster, scope)
    return replace(
        column,
        roster=roster,
        floats=[column.floats_for(roster, index) for index in range(len(column.floats))],
        codes=[bytearray(column.codes_for(roster, index)) for index in range(len(column.codes))],
        pools={pool_id: values for pool_id, values in column.pools.items() if pool_id in scope},
        rejections={pool_id: rates for pool_id, rates in column.rejections.items() if pool_id in scope},
    )


@lru_cache(maxsize=256)
def _scoped_roster(roster: HistoryRoster, scope: frozenset[str]) -> HistoryRoster:
    """Return the engines in scope; columns with the same roster share the result."""
    rows = [row for row, pool_id in enumerate(roster.pool_ids) if pool_id in scope]
    return HistoryRoster(*(tuple(item[row] for row in rows) for item in roster.rows))
