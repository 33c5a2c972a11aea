"""Creates people and changes their permissions. Only admins can do so."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.contrib.auth.models import User
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import Q

from controlplane.access.models.role_grant import RoleGrant
from controlplane.access.sessions import end_sessions_of
from controlplane.fleet.models.pool import Pool
from controlplane.platform import audit
from controlplane.platform.actor import Actor
from controlplane.platform.field_problems import FieldProblem, InvalidFieldsError, problem
from controlplane.platform.role import Role
from controlplane.platform.roles import require

KIND = "person"
MAX_PASSWORD = 256


def create_person(
    username: str,
    password: str | None,
    *,
    actor: Actor,
    role: Role | None = None,
    pools: Sequence[Pool] = (),
    everywhere: bool = False,
    why: str = "",
) -> User:
    """Create a person with a role in these pools or `everywhere`. An admin's role always applies everywhere.

    Without pools the person has no role yet. Without a password the person cannot sign in until one is set. Raises
    NotAllowedError, and InvalidFieldsError with every problem.
    """
    require(actor, Role.ADMIN)
    user = User(username=User.normalize_username(username.strip()))
    problems = [*_username_problems(user.username), *password_problems(password, user)]
    if role == Role.ADMIN and pools:
        problems.append(FieldProblem("pools", "An admin's role covers all pools; choose no pools, or another role."))
    elif everywhere and pools:
        problems.append(FieldProblem("pools", "Choose all pools, or some of them."))
    if problems:
        raise InvalidFieldsError(problems)
    user.set_password(password)
    try:
        with transaction.atomic():
            user.save(force_insert=True)
            if role is not None:
                _store_grants(user, role, (None,) if everywhere or role == Role.ADMIN else pools)
            audit.record(actor, "person.create", KIND, user.username, after=audit_fields(user), why=why)
    except IntegrityError as error:
        raise problem("username", "A person with this name was just added.") from error
    return user


def grant_role(user: User, role: Role, *, actor: Actor, pool: Pool | None, why: str = "") -> bool:
    """Replace the person's role in a pool (None: everywhere). Return False if it is unchanged.

    Raises NotAllowedError, InvalidFieldsError.
    """
    require(actor, Role.ADMIN)
    if role == Role.ADMIN and pool is not None:
        raise problem("pool", "An admin's role covers all pools; leave the pool empty.")
    with transaction.atomic():
        before = audit_fields(_locked(user))
        _store_grants(user, role, (pool,))
        after = audit_fields(user)
        if after == before:
            return False
        # Checked after the write, under the lock: the rollback gives the last admin their role back.
        _require_an_admin()
        _record(actor, "person.grant", user, before, why, pool)
    return True


def withdraw_role(user: User, *, actor: Actor, pool: Pool | None = None, why: str = "") -> bool:
    """Withdraw the person's role in a pool (None: everywhere). Return False if an admin gave the person no such role.

    Raises NotAllowedError, and InvalidFieldsError if no admin would remain.
    """
    require(actor, Role.ADMIN)
    with transaction.atomic():
        before = audit_fields(_locked(user))
        deleted, _ = RoleGrant.objects.filter(user=user, pool=pool, by_group="").delete()
        if not deleted:
            return False
        _require_an_admin()
        _record(actor, "person.withdraw", user, before, why, pool)
    return True


def set_active(user: User, active: bool, *, actor: Actor, why: str = "") -> bool:
    """Allow the person to sign in, or forbid it and end all their sessions. Return False if nothing changes.

    Raises NotAllowedError, and InvalidFieldsError if actors deactivate themselves or no admin would remain.
    """
    require(actor, Role.ADMIN)
    # Otherwise an admin could lock themselves out.
    if not active and actor.user is not None and actor.user.pk == user.pk:
        raise problem("", "You cannot deactivate yourself; ask another admin.")
    with transaction.atomic():
        before = audit_fields(_locked(user))
        if not User.objects.filter(pk=user.pk, is_active=not active).update(is_active=active):
            return False
        user.is_active = active
        if not active:
            _require_an_admin()
            end_sessions_of(user)
        _record(actor, "person.activate" if active else "person.deactivate", user, before, why)
    return True


def set_password(user: User, password: str, *, actor: Actor, keep_session: str = "", why: str = "") -> None:
    """Set the person's password and end their sessions, except the session with the key `keep_session`.

    Admins can set any password, other people only their own. Raises NotAllowedError, InvalidFieldsError.
    """
    if actor.user is None or actor.user.pk != user.pk:
        require(actor, Role.ADMIN)
    if problems := password_problems(password, user):
        raise InvalidFieldsError(problems)
    with transaction.atomic():
        user.set_password(password)
        # Not save(): it would also write back is_active and the other fields as they were when this person was read.
        User.objects.filter(pk=user.pk).update(password=user.password)
        end_sessions_of(user, keep=keep_session)
        audit.record(actor, "person.set_password", KIND, user.username, why=why)


def audit_fields(user: User) -> dict[str, Any]:
    """Return a person's fields in the form recorded in the audit."""
    grants = RoleGrant.objects.filter(user=user).select_related("pool").order_by("pool__slug")
    return {
        "username": user.username,
        "active": user.is_active,
        "superuser": user.is_superuser,
        "roles": {_where(grant): grant.role for grant in grants},
    }


def _where(grant: RoleGrant) -> str:
    where = grant.pool.slug if grant.pool else "everywhere"
    return f"{where} by group {grant.by_group}" if grant.by_group else where


def password_problems(password: str | None, user: User) -> list[FieldProblem]:
    """Return all problems of a password; None has no problems."""
    if password is None:
        return []
    if len(password) > MAX_PASSWORD:
        # Hashing megabytes is an attack on us, so the length comes first.
        return [FieldProblem("password", f"Must be at most {MAX_PASSWORD} characters.")]
    try:
        validate_password(password, user)
    except ValidationError as error:
        return [FieldProblem("password", text) for text in error.messages]
    return []


def _username_problems(username: str) -> list[FieldProblem]:
    try:
        User._meta.get_field("username").clean(username, None)
    except ValidationError as error:
        return [FieldProblem("username", text) for text in error.messages]
    if User.objects.filter(username__iexact=username).exists():
        return [FieldProblem("username", "This name is taken; names must differ in more than case.")]
    return []


def _store_grants(user: User, role: Role, pools: Iterable[Pool | None]) -> None:
    for pool in pools:
        RoleGrant.objects.update_or_create(user=user, pool=pool, by_group="", defaults={"role": role})
    # platform.roles keeps the grants on the person, and they have changed.
    user.__dict__.pop("_role_grants", None)


def _require_an_admin() -> None:
    """Raise InvalidFieldsError if no active admin remains, because accounts could not be restored then."""
    admins = Q(is_superuser=True) | Q(role_grants__role=Role.ADMIN, role_grants__pool=None)
    if not User.objects.filter(admins, is_active=True).exists():
        raise problem("", "This is the last admin; make another person an admin first.")


def _locked(user: User) -> User:
    """Lock the admins' accounts and return this person, reloaded.

    The lock keeps two admins from removing each other.
    """
    admins = RoleGrant.objects.filter(role=Role.ADMIN).values("user")
    wanted = Q(is_superuser=True) | Q(pk__in=admins) | Q(pk=user.pk)
    return {person.pk: person for person in User.objects.select_for_update().filter(wanted)}[user.pk]


def _record(actor: Actor, verb: str, user: User, before: dict[str, Any], why: str, pool: Pool | None = None) -> None:
    user.__dict__.pop("_role_grants", None)
    name = pool.slug if pool else ""
    audit.record(actor, verb, KIND, user.username, before=before, after=audit_fields(user), why=why, pool=name)
