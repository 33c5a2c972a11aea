"""Admits people whom the sign-in provider has identified, and gives them the roles of their groups.

A person is known by the provider's issuer and subject, never by name or e-mail address. Roles of groups are computed
again at each sign-in and after each change of a group's grants. Roles that an admin gave stay beside them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import count
from typing import Any

from allauth.socialaccount.models import SocialAccount
from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction

from controlplane.access.models.group_grant import MAX_GROUP, GroupGrant
from controlplane.access.models.person import Person
from controlplane.access.models.role_grant import RoleGrant
from controlplane.fleet.models.pool import Pool
from controlplane.platform import audit, recorded_change
from controlplane.platform.actor import Actor, program
from controlplane.platform.audit_values import audit_values
from controlplane.platform.field_problems import check_names, problem
from controlplane.platform.revisions import bump, locked
from controlplane.platform.role import ALL_POOLS, Role
from controlplane.platform.roles import require

MAX_GROUPS = 2000
MAX_SUBJECT = 191
MAX_NAME = 140
PROVIDER = program("sign-in provider")
_RANK = {role: rank for rank, role in enumerate(Role.values)}


class NotAdmittedError(Exception):
    """The provider has identified the person, but Headway does not admit them. The message states why."""


def admit(issuer: str, claims: Mapping[str, Any], groups: Any) -> User:
    """Return the person of verified claims with the roles of these groups, added at the first sign-in.

    Raises NotAdmittedError for a deactivated person, whose roles then stay as they are.
    """
    subject = claims["sub"]
    if not isinstance(subject, str) or not 0 < len(subject) <= MAX_SUBJECT:
        raise NotAdmittedError(f"The provider's subject must have 1 to {MAX_SUBJECT} characters.")
    named = [groups] if isinstance(groups, str) else list(groups or ())[:MAX_GROUPS]
    known = sorted({group for group in named if isinstance(group, str) and len(group) <= MAX_GROUP})
    with transaction.atomic():
        account = SocialAccount.objects.filter(provider=issuer, uid=subject).first()
        if account is None:
            name = str(claims.get("preferred_username") or claims.get("email") or subject)
            account = SocialAccount(user=_added(name), provider=issuer, uid=subject)
        user: User = account.user
        if not user.is_active:
            raise NotAdmittedError("Your account is deactivated. Ask an admin.")
        account.extra_data = {"groups": known}
        account.save()
        give_roles(user, known, actor=PROVIDER)
    return user


def give_roles(user: User, groups: Iterable[str], *, actor: Actor) -> None:
    """Replace the person's roles of groups by those that these groups give, the highest in each pool."""
    pools = {ALL_POOLS: None, **{pool.slug: pool for pool in Pool.objects.all()}}
    wanted = {}
    for grant in sorted(GroupGrant.objects.filter(group__in=list(groups)), key=lambda one: _RANK[one.role]):
        # A deleted pool opens nothing.
        if grant.pool in pools:
            pool = pools[grant.pool]
            wanted[grant.pool] = RoleGrant(user=user, pool=pool, role=grant.role, by_group=grant.group)
    with transaction.atomic():
        stored = RoleGrant.objects.select_for_update().filter(user=user).exclude(by_group="")
        if _facts(stored) == _facts(wanted.values()):
            return
        person = locked(user.person, None)
        before = audit_values(person)
        stored.delete()
        RoleGrant.objects.bulk_create(wanted.values())
        user.__dict__.pop("_role_grants", None)
        bump(person, {})
        audit.record_for(actor, "person.roles_of_groups", person, before=before, after=audit_values(person))


def create_grant(group: str, role: str, *, pool: str = ALL_POOLS, actor: Actor, why: str = "") -> GroupGrant:
    """Give everyone in a group a role. Raises NotAllowedError, InvalidFieldsError."""
    require(actor, Role.ADMIN)
    if pool != ALL_POOLS and not Pool.objects.filter(slug=pool).exists():
        raise problem("pool", f"No such pool: {pool}.")
    _check_admin(role, pool)
    with transaction.atomic():
        grant = GroupGrant(group=group, pool=pool, role=role)
        grant = recorded_change.create(grant, "group_grant.create", actor=actor, why=why)
        _give_all(actor)
    return grant


def change_grant(
    grant: GroupGrant, changes: Mapping[str, Any], *, actor: Actor, expected: int | None = None, why: str = ""
) -> GroupGrant:
    """Change a group's role. Raises NotAllowedError, InvalidFieldsError, StaleRevisionError."""
    require(actor, Role.ADMIN)
    check_names(changes, {"role"})
    _check_admin(changes.get("role", grant.role), grant.pool)
    with transaction.atomic():
        recorded_change.change(grant, changes, "group_grant.change", actor=actor, expected=expected, why=why)
        _give_all(actor)
    return grant


def delete_grant(grant: GroupGrant, *, actor: Actor, expected: int | None = None, why: str = "") -> None:
    """Take a group's role away from everyone in it. Raises NotAllowedError, StaleRevisionError."""
    require(actor, Role.ADMIN)
    with transaction.atomic():
        recorded_change.delete(grant, "group_grant.delete", actor=actor, expected=expected, why=why)
        _give_all(actor)


def _give_all(actor: Actor) -> None:
    """Compute the roles of groups again for everyone whom the provider has identified."""
    for account in SocialAccount.objects.filter(provider=settings.OIDC_ISSUER).select_related("user"):
        give_roles(account.user, account.extra_data["groups"], actor=actor)


def _check_admin(role: str, pool: str) -> None:
    if role == Role.ADMIN and pool != ALL_POOLS:
        raise problem("role", f"An admin acts in all pools; use the pool {ALL_POOLS}, or another role.")


def _facts(grants: Iterable[RoleGrant]) -> set[tuple[int | None, str, str]]:
    return {(grant.pool_id, grant.role, grant.by_group) for grant in grants}


def _added(wanted: str) -> Person:
    """Add a person who cannot sign in with a password. A taken name gets a number: it is no proof of identity."""
    wanted = re.sub(r"[^\w.@+-]", "-", wanted)[:MAX_NAME]
    names = (wanted if number == 1 else f"{wanted}-{number}" for number in count(1))
    person = Person(username=next(name for name in names if not User.objects.filter(username__iexact=name).exists()))
    person.set_unusable_password()
    person.save(force_insert=True)
    audit.record_for(PROVIDER, "person.create", person, after=audit_values(person), why="First sign-in")
    return person
