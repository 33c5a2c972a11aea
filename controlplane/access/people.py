"""Creates people and changes their permissions. Only admins can do so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any
from zoneinfo import available_timezones

from django.contrib.auth.models import User
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import Q

from controlplane.access.models.person import Person
from controlplane.access.models.role_grant import RoleGrant
from controlplane.access.sessions import end_sessions_of
from controlplane.fleet.models.pool import Pool
from controlplane.platform import audit
from controlplane.platform.actor import Actor
from controlplane.platform.audit_values import audit_values
from controlplane.platform.field_problems import FieldProblem, InvalidFieldsError, check_names, problem
from controlplane.platform.resource.declared_field import settable_fields
from controlplane.platform.revisions import bump, locked
from controlplane.platform.role import ALL_POOLS, Role
from controlplane.platform.roles import require

KIND = "person"
MAX_PASSWORD = 256
_RANK = {role: rank for rank, role in enumerate(Role.values)}


def create_person(
    username: str,
    password: str | None = None,
    *,
    actor: Actor,
    roles: Sequence[str] = (),
    is_active: bool = True,
    why: str = "",
) -> Person:
    """Create a person with these roles, each as pool=role.

    Without roles the person sees no pool. Without a password the person cannot sign in until one is set. Raises
    NotAllowedError, and InvalidFieldsError with every problem.
    """
    require(actor, Role.ADMIN)
    person = Person(username=User.normalize_username(username.strip()), is_active=is_active)
    grants, problems = _read_roles(roles)
    problems = [*_username_problems(person.username), *password_problems(password or None, person), *problems]
    if problems:
        raise InvalidFieldsError(problems)
    person.set_password(password or None)
    try:
        with transaction.atomic():
            person.save(force_insert=True)
            _store_grants(person, grants)
            audit.record_for(actor, "person.create", person, after=audit_values(person), why=why)
    except IntegrityError as error:
        raise problem("username", "A person with this name was just added.") from error
    return person


def change_person(
    person: Person, changes: Mapping[str, Any], *, actor: Actor, expected: int | None = None, why: str = ""
) -> Person:
    """Replace the roles that admins gave, or deactivate the person, which ends all their sessions. Return the person.

    Raises NotAllowedError, StaleRevisionError, and InvalidFieldsError if actors deactivate themselves or no admin would
    remain.
    """
    require(actor, Role.ADMIN)
    check_names(changes, settable_fields(Person))
    active = changes.get("is_active", person.is_active)
    grants, problems = _read_roles(changes.get("roles", ()))
    # Otherwise an admin could lock themselves out.
    if not active and actor.user is not None and actor.user.pk == person.pk:
        problems.append(FieldProblem("", "You cannot deactivate yourself; ask another admin."))
    if problems:
        raise InvalidFieldsError(problems)
    with transaction.atomic():
        _lock_admins()
        stored = locked(person, expected)
        before = audit_values(stored)
        stored.is_active = active
        if "roles" in changes:
            _store_grants(stored, grants)
        if audit_values(stored) != before:
            bump(stored, {"is_active": active})
            # Checked after the write, under the lock: the rollback gives the last admin their role back.
            _require_an_admin()
            if not active:
                end_sessions_of(stored)
            audit.record_for(actor, "person.change", stored, before=before, after=audit_values(stored), why=why)
    return stored


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


PREFERENCES = {name: Person._meta.get_field(name) for name in ("time_zone", "clock", "theme")}
"""Fields that only their person sets and sees."""


@cache
def time_zones() -> frozenset[str]:
    """Return the names of all time zones."""
    return frozenset(available_timezones())


def set_preferences(person: Person, changes: Mapping[str, Any]) -> Person:
    """Store how the console shows times and colors to the person, and return it. Raises InvalidFieldsError."""
    check_names(changes, PREFERENCES)
    problems = [item for name, value in changes.items() for item in _field_problems(name, value)]
    if changes.get("time_zone", "") not in ("", *time_zones()):
        problems.append(FieldProblem("time_zone", "Use an IANA name such as Europe/Berlin."))
    if problems:
        raise InvalidFieldsError(problems)
    Person.objects.filter(pk=person.pk).update(**changes)
    person.__dict__.update(changes)
    return person


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
    if problems := _field_problems("username", username):
        return problems
    if User.objects.filter(username__iexact=username).exists():
        return [FieldProblem("username", "This name is taken; names must differ in more than case.")]
    return []


def _field_problems(name: str, value: Any) -> list[FieldProblem]:
    try:
        Person._meta.get_field(name).clean(value, None)
    except ValidationError as error:
        return [FieldProblem(name, text) for text in error.messages]
    return []


def _read_roles(texts: Iterable[str]) -> tuple[dict[Pool | None, Role], list[FieldProblem]]:
    """Return the highest role in each pool (None: everywhere) of texts such as chat=operator, and their problems."""
    pools: dict[str, Pool | None] = {ALL_POOLS: None, **{pool.slug: pool for pool in Pool.objects.all()}}
    grants: dict[Pool | None, Role] = {}
    problems = []
    for text in texts:
        where, _, role = text.partition("=")
        if where not in pools or role not in Role.values:
            problems.append(FieldProblem("roles", f"Not a role in a pool: {text}. Write pool=role, such as *=viewer."))
        elif role == Role.ADMIN and where != ALL_POOLS:
            problems.append(FieldProblem("roles", "An admin acts in all pools: write *=admin."))
        else:
            grants[pools[where]] = max(grants.get(pools[where], Role.VIEWER), Role(role), key=_RANK.__getitem__)
    return grants, problems


def _store_grants(person: Person, grants: Mapping[Pool | None, Role]) -> None:
    """Replace the roles that admins gave. Grants that stay keep their rows."""
    stored = RoleGrant.objects.filter(user=person, by_group="")
    kept = [grant.pk for grant in stored if grants.get(grant.pool) == grant.role]
    stored.exclude(pk__in=kept).delete()
    for pool, role in grants.items():
        RoleGrant.objects.get_or_create(user=person, pool=pool, by_group="", defaults={"role": role})
    # platform.roles keeps the grants on the person, and they have changed.
    person.__dict__.pop("_role_grants", None)


def _require_an_admin() -> None:
    """Raise InvalidFieldsError if no active admin remains, because accounts could not be restored then."""
    admins = Q(is_superuser=True) | Q(role_grants__role=Role.ADMIN, role_grants__pool=None)
    if not User.objects.filter(admins, is_active=True).exists():
        raise problem("", "This is the last admin; make another person an admin first.")


def _lock_admins() -> None:
    """Lock the admins' accounts, which keeps two admins from removing each other."""
    admins = Q(is_superuser=True) | Q(pk__in=RoleGrant.objects.filter(role=Role.ADMIN).values("user"))
    list(User.objects.select_for_update().filter(admins))
