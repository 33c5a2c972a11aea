"""Checks who may change a policy: operators of one of its pools may draft, operators of all its pools may publish."""

from __future__ import annotations

from controlplane.platform.actor import Actor
from controlplane.platform.role import Role
from controlplane.platform.roles import may, require
from controlplane.policies.models.policy import Policy


def require_some_pool(actor: Actor, policy: Policy) -> None:
    """Raise NotAllowedError unless the actor operates one of the policy's pools."""
    if not any(may(actor, Role.OPERATOR, pool) for pool in policy.pools.all()):
        require(actor, Role.OPERATOR)


def require_all_pools(actor: Actor, policy: Policy) -> None:
    """Raise NotAllowedError unless the actor operates all of the policy's pools or, for a policy without pools,
    everywhere.
    """
    pools = list(policy.pools.all())
    for pool in pools:
        require(actor, Role.OPERATOR, pool)
    if not pools:
        require(actor, Role.OPERATOR)


def may_publish(actor: Actor, policy: Policy) -> bool:
    """Return whether `require_all_pools` would pass."""
    pools = list(policy.pools.all())
    return all(may(actor, Role.OPERATOR, pool) for pool in pools) if pools else may(actor, Role.OPERATOR)


def only_pool(policy: Policy) -> str:
    """Return the pool for an event about the policy; empty if there are several."""
    slugs = list(policy.pools.values_list("slug", flat=True)[:2])
    return slugs[0] if len(slugs) == 1 else ""
