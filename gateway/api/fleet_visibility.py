"""Keys with fleet-wide rights: operators' keys see cache hits, and their reports on engines count alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.access.authentication import MANAGE
from gateway.contracts.snapshot import ApiKeyEntry

if TYPE_CHECKING:
    from gateway.pool.live_pool import LivePool


def may_see_hits(caller: ApiKeyEntry, pool: LivePool, *, salted: bool) -> bool:
    """Return whether hits tell the caller of its own tenant's prompts alone, or it is an operator.

    `salted`: the prompt's blocks are the tenant's own whatever the pool does.
    """
    return pool.one_tenant or salted or MANAGE in caller.scopes or pool.entry.isolated


def reporter_of(caller: ApiKeyEntry, pool: LivePool) -> str:
    """Return the tenant on whose word alone no engine is judged; empty: it is the only one, or an operator."""
    return "" if pool.one_tenant or MANAGE in caller.scopes else caller.tenant_id
