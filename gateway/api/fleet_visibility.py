"""Keys with fleet-wide rights: operators' keys see cache hits and loads, and their evidence on engines is sufficient
alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.access.authentication import MANAGE
from gateway.contracts.snapshot import ApiKeyEntry

if TYPE_CHECKING:
    from gateway.pool.live_pool import LivePool


def may_see_load(caller: ApiKeyEntry, pool: LivePool) -> bool:
    """Return whether an engine's wait reveals no other tenant's prompts to the caller, or it is an operator.

    A wait contains the prefills of the caller's own reservations, which are shorter for what others have cached.
    """
    return not pool.hides_load_from(witness_of(caller, pool))


def may_see_hits(caller: ApiKeyEntry, pool: LivePool, *, salted: bool) -> bool:
    """Return whether a prompt's hits reveal its own tenant's prompts alone to the caller, or it is an operator.

    `salted`: the prompt's blocks are the tenant's own whatever the pool does.
    """
    return salted or may_see_load(caller, pool)


def witness_of(caller: ApiKeyEntry, pool: LivePool) -> str:
    """Return the tenant whose evidence alone judges no engine; empty: it is the only one, or an operator."""
    return "" if pool.one_tenant or MANAGE in caller.scopes else caller.tenant_id
