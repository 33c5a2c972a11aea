"""Signs people in for the OpenID provider, and gives them the roles of their groups.

A person is known by the provider's issuer and subject, never by name or e-mail address. Roles of groups are computed
again at each sign-in and after each change of a group's grants. Roles that an admin gave stay beside them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

from allauth.socialaccount.models import SocialAccount
from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction

from controlplane.access.models.group_grant import MAX_GROUP, GroupGrant
from controlplane.access.models.role_grant import RoleGrant
from controlplane.access.people import KIND, audit_fields
from controlplane.fleet.models.pool import Pool
from controlplane.platform import audit, recorded_change
from controlplane.platform.actor import Actor, program
from controlplane.platform.field_problems import check_names, problem
from controlplane.platform.resource.declared_field import settable_fields
from controlplane.platform.role import ALL_POOLS, Role
from controlplane.platform.roles import require

MAX_GROUPS = 2000
MAX_SUBJECT = 191
MAX_NAME = 140
PROVIDER = program("sign-in provider")
_RANK = {role: rank for rank, role in enumerate(Role.values)}
_FIELDS = frozenset(settable_fields(GroupGrant))


class NotAdmittedError(Exception):
    """The provider has identified the person, but Headway does not admit them. The message states why."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Whom the provider has identified. Only issuer and subject identify a person; the name is a proposal."""

    issuer: str
    subject: str
    name: str
    groups: tuple[str, ...] = ()

    @classmethod
    def of(cls, issuer: str, claims: Mapping[str, Any], groups_claim: str) -> Identity:
        """Read verified claims. Groups that are no texts, or too long, are left out. Raises NotAdmittedError."""
        subject = claims.get("sub")
        if not isinstance(subject, str) or not 0 < len(subject) <= MAX_SUBJECT:
            raise NotAdmittedError(f"The provider's subject must have 1 to {MAX_SUBJECT} characters.")
        name = claims.get("preferred_username") or claims.get("email") or subject
        groups = claims.get(groups_claim) or ()
        groups = (groups,) if isinstance(groups, str) else groups
        known = (group for group in groups[:MAX_GROUPS] if isinstance(group, str) and len(group) <= MAX_GROUP)
        return cls(issuer, subject, str(name), tuple(sorted(set(known))))


def admit(identity: Identity) -> User:
    """Return the identified person with the roles of their groups, added at the first sign-in.

    Raises NotAdmittedError for a deactivated person, whose roles then stay as they are.
    """
    with transaction.atomic():
        account = SocialAccount.objects.filter(provider=identity.issuer, uid=identity.subject).first()
        if account is None:
            account = SocialAccount(user=_added(identity), provider=identity.issuer, uid=identity.subject)
        user: User = account.user
        if not user.is_active:
            raise NotAdmittedError("Your account is deactivated. Ask an admin.")
        account.extra_data = {"groups": list(identity.groups)}
        account.save()
        give_roles(user, identity.groups, actor=PROVIDER)
    return user


def give_roles(user: User, groups: Iterable[str], *, actor: Actor) -> bool:
    """Replace the person's roles of groups by those that these groups give. Return False if nothing changes."""
    pools = {pool.slug: pool for pool in Pool.objects.all()}
    wanted: dict[int | None, RoleGrant] = {}
    for grant in sorted(GroupGrant.objects.filter(group__in=list(groups)), key=lambda one: _RANK[one.role]):
        pool = pools.get(grant.pool)
        # A deleted pool opens nothing.
        if pool is not None or grant.pool == ALL_POOLS:
            key = pool.pk if pool else None
            wanted[key] = RoleGrant(user=user, pool=pool, role=grant.role, by_group=grant.group)
    with transaction.atomic():
        stored = RoleGrant.objects.select_for_update().filter(user=user).exclude(by_group="")
        if {(one.pool_id, one.role, one.by_group) for one in stored} == {
            (one.pool_id, one.role, one.by_group) for one in wanted.values()
        }:
            return False
        before = audit_fields(user)
        stored.delete()
        RoleGrant.objects.bulk_create(wanted.values())
        user.__dict__.pop("_role_grants", None)
        audit.record(actor, "person.roles_of_groups", KIND, user.username, before=before, after=audit_fields(user))
    return True


def create_grant(group: str, role: str, *, pool: str = ALL_POOLS, actor: Actor, why: str = "") -> GroupGrant:
    """Give everyone in a group a role. Raises NotAllowedError, InvalidFieldsError."""
    require(actor, Role.ADMIN)
    grant = GroupGrant(group=group.strip(), pool=pool, role=role)
    _check(grant)
    with transaction.atomic():
        stored = recorded_change.create(grant, "group_grant.create", actor=actor, why=why)
        _give_all(actor)
    return stored


def change_grant(
    grant: GroupGrant, changes: Mapping[str, Any], *, actor: Actor, expected: int | None = None, why: str = ""
) -> GroupGrant:
    """Change a group's role. Raises NotAllowedError, InvalidFieldsError, StaleRevisionError."""
    require(actor, Role.ADMIN)
    check_names(changes, _FIELDS)
    _check(GroupGrant(group=grant.group, pool=grant.pool, role=changes.get("role", grant.role)))
    with transaction.atomic():
        changed = recorded_change.change(grant, changes, "group_grant.change", actor=actor, expected=expected, why=why)
        _give_all(actor)
    return changed


def delete_grant(grant: GroupGrant, *, actor: Actor, expected: int | None = None, why: str = "") -> None:
    """Take a group's role away from everyone in it. Raises NotAllowedError, StaleRevisionError."""
    require(actor, Role.ADMIN)
    with transaction.atomic():
        recorded_change.delete(grant, "group_grant.delete", actor=actor, expected=expected, why=why)
        _give_all(actor)


def _give_all(actor: Actor) -> None:
    """Compute the roles of groups again for everyone whom the provider has identified."""
    for account in SocialAccount.objects.filter(provider=settings.OIDC_ISSUER).select_related("user"):
        give_roles(account.user, account.extra_data.get("groups", ()), actor=actor)


def _check(grant: GroupGrant) -> None:
    if not grant.group:
        raise problem("group", "Enter the group's name.")
    if grant.pool != ALL_POOLS and not Pool.objects.filter(slug=grant.pool).exists():
        raise problem("pool", f"No such pool: {grant.pool}.")
    if grant.role == Role.ADMIN and grant.pool != ALL_POOLS:
        raise problem("pool", f"An admin acts in all pools; use {ALL_POOLS}, or another role.")


def _added(identity: Identity) -> User:
    """Add a person who cannot sign in with a password. A taken name gets a number: it is no proof of identity."""
    wanted = re.sub(r"[^\w.@+-]", "-", identity.name)[:MAX_NAME] or "person"
    names = (wanted if number == 1 else f"{wanted}-{number}" for number in count(1))
    user = User(username=next(name for name in names if not User.objects.filter(username__iexact=name).exists()))
    user.set_unusable_password()
    user.save(force_insert=True)
    audit.record(PROVIDER, "person.create", KIND, user.username, after=audit_fields(user), why="First sign-in")
    return user
