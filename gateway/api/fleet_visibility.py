"""Decides who sees fleet-wide facts. Operators' keys see all hits and loads, and their evidence alone can judge
engines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.access.authentication import MANAGE
from gateway.contracts.snapshot import ApiKeyEntry

if TYPE_CHECKING:
    from gateway.pools.pool.live_pool import LivePool


def may_see_load(caller: ApiKeyEntry, pool: LivePool) -> bool:
    """Return whether the caller can see an engine's wait: it reveals no other tenant's prompts, or it is an operator.

    A wait includes the prefills of the caller's own reservations, which are shorter if others' caches help them.
    """
    return not pool.hides_load_from(witness_of(caller, pool))


def may_see_hits(caller: ApiKeyEntry, pool: LivePool, *, salted: bool) -> bool:
    """Return whether the caller can see a prompt's hits: they reveal only its own prompts, or it is an operator.

    `salted`: the prompt's blocks belong to the tenant alone, independent of the pool.
    """
    return salted or may_see_load(caller, pool)


def witness_of(caller: ApiKeyEntry, pool: LivePool) -> str:
    """Return the tenant whose evidence alone cannot judge an engine; empty for a sole tenant or an operator."""
    return "" if pool.one_tenant or MANAGE in caller.scopes else caller.tenant_id
