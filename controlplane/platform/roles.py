"""Permission checks: whether an actor may do something in a pool or everywhere."""

from __future__ import annotations

from typing import Protocol

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, User
from django.db.models import Q

from controlplane.platform.actor import Actor
from controlplane.platform.role import Role

_RANK = {Role.VIEWER: 1, Role.OPERATOR: 2, Role.ADMIN: 3}


class RoleScope(Protocol):
    """The pool to which a role applies. This module uses only its primary key."""

    pk: int
    slug: str


class NotAllowedError(PermissionError):
    """The actor's role is insufficient. The message names the required role."""


def role_in(user: User | AbstractBaseUser | AnonymousUser, pool: RoleScope | None = None) -> Role | None:
    """Return the person's role in a pool (None: in the whole installation); None without a role.

    Grants are cached on the person object, so this takes one query per object.
    """
    if not isinstance(user, User) or not user.is_active:
        return None
    if user.is_superuser:
        return Role.ADMIN
    grants = _grants(user)
    roles = [grants[scope] for scope in ({None, pool.pk} if pool else {None}) if scope in grants]
    return max(roles, key=lambda role: _RANK[role], default=None)


def _grants(user: User) -> dict[int | None, Role]:
    """Return the person's roles by pool (None: everywhere)."""
    if not user.is_active:
        return {}
    grants: dict[int | None, Role] | None = user.__dict__.get("_role_grants")
    if grants is None:
        # By admins and by groups; the highest role applies.
        ordered = sorted(user.role_grants.all(), key=lambda grant: _RANK[Role(grant.role)])
        grants = user.__dict__["_role_grants"] = {grant.pool_id: Role(grant.role) for grant in ordered}
    return grants


def may(actor: Actor, wanted: Role, pool: RoleScope | None = None) -> bool:
    """Return whether the actor has at least the given role there. The program itself may do everything."""
    if actor.user is None:
        if actor.pools is not None and (pool is None or pool.slug not in actor.pools):
            return False
        return actor.role is None or _RANK[actor.role] >= _RANK[wanted]
    role = role_in(actor.user, pool)
    return role is not None and _RANK[role] >= _RANK[wanted]


def may_somewhere(actor: Actor, wanted: Role) -> bool:
    """Return whether the actor has at least the given role in some pool or everywhere."""
    if may(actor, wanted):
        return True
    if actor.pools and actor.role is not None:
        return _RANK[actor.role] >= _RANK[wanted]
    return isinstance(actor.user, User) and any(_RANK[role] >= _RANK[wanted] for role in _grants(actor.user).values())


def require_somewhere(actor: Actor, wanted: Role) -> None:
    """Raise NotAllowedError unless `may_somewhere`."""
    if not may_somewhere(actor, wanted):
        raise NotAllowedError(f"This requires the role {wanted.value}; ask an admin under Access.")


def require(actor: Actor, wanted: Role, pool: RoleScope | None = None) -> None:
    """Raise NotAllowedError unless `may`."""
    if not may(actor, wanted, pool):
        where = f"pool {pool.slug}" if pool else "all pools"
        raise NotAllowedError(f"This requires the role {wanted.value} in {where}; ask an admin under Access.")


def seen_by(actor: Actor, path: str = "") -> Q:
    """Return the condition for rows that the actor may see. `path` leads from a row to its pools, such as `pools__`.

    A row with several pools may occur several times.
    """
    if may(actor, Role.VIEWER):
        return Q()
    if actor.user is None:
        return Q(**{f"{path}slug__in": actor.pools or ()})
    return Q(**{f"{path}role_grants__user": actor.user})
