"""Admins create and change people. The audit omits their secrets, and at least one admin remains."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User

from controlplane.access import people
from controlplane.access.models.role_grant import RoleGrant
from controlplane.fleet.models.pool import Pool
from controlplane.platform.actor import CONSOLE, Actor, person, program
from controlplane.platform.field_problems import InvalidFieldsError
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.role import Role
from controlplane.platform.roles import NotAllowedError, role_in

pytestmark = pytest.mark.django_db
GOOD = "correct-horse-battery"
CANARY = "canary-pass-9f31"
PROGRAM = program("test")


@pytest.fixture(autouse=True)
def quick_hashes(settings: object) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


def admin(name: str = "boss") -> Actor:
    user = User.objects.create(username=name)
    RoleGrant.objects.create(user=user, role=Role.ADMIN)
    return person(user, via=CONSOLE, request_id="r-1")


def test_new_person_signs_in_with_the_given_role(pool: Pool) -> None:
    user = people.create_person("op", GOOD, actor=admin(), role=Role.OPERATOR, pools=[pool], why="on call")
    assert user.check_password(GOOD)
    assert role_in(user, pool) == Role.OPERATOR
    assert role_in(user) is None
    event = AuditEvent.objects.get(verb="person.create")
    assert event.after == {"username": "op", "active": True, "superuser": False, "roles": {"chat": "operator"}}
    assert (event.actor_name, event.why, event.request_id) == ("boss", "on call", "r-1")


def test_person_without_a_password_cannot_sign_in(pool: Pool) -> None:
    assert not people.create_person("op", None, actor=PROGRAM).has_usable_password()


@pytest.mark.parametrize(
    ("username", "password", "paths"),
    [
        ("", GOOD, {"username"}),
        ("a b", GOOD, {"username"}),
        ("x" * 151, GOOD, {"username"}),
        ("BOSS", GOOD, {"username"}),
        ("op\n", GOOD, set()),
        ("o\np", GOOD, {"username"}),
        ("op", "short", {"password"}),
        ("op", "password123", {"password"}),
        ("op", "x" * 257, {"password"}),
        ("operator-lind", "operator-lind", {"password"}),
        ("", "short", {"username", "password"}),
    ],
)
def test_all_errors_are_reported_together(username: str, password: str, paths: set[str]) -> None:
    actor = admin()
    if not paths:
        assert people.create_person(username, password, actor=actor).username == username.strip()
        return
    with pytest.raises(InvalidFieldsError) as caught:
        people.create_person(username, password, actor=actor)
    assert {problem.path for problem in caught.value.problems} == paths
    assert not User.objects.exclude(username="boss").exists()
    assert not AuditEvent.objects.exists()


def test_admin_has_the_role_in_all_pools(pool: Pool) -> None:
    with pytest.raises(InvalidFieldsError):
        people.create_person("op", GOOD, actor=PROGRAM, role=Role.ADMIN, pools=[pool])
    user = people.create_person("op", GOOD, actor=PROGRAM)
    with pytest.raises(InvalidFieldsError):
        people.grant_role(user, Role.ADMIN, actor=PROGRAM, pool=pool)
    assert role_in(people.create_person("boss", GOOD, actor=PROGRAM, role=Role.ADMIN)) == Role.ADMIN


def test_role_applies_to_all_pools_only_if_all_pools_are_selected(pool: Pool) -> None:
    nowhere = people.create_person("a", GOOD, actor=PROGRAM, role=Role.OPERATOR)
    assert (role_in(nowhere), role_in(nowhere, pool)) == (None, None)
    everywhere = people.create_person("b", GOOD, actor=PROGRAM, role=Role.OPERATOR, everywhere=True)
    assert role_in(everywhere) == Role.OPERATOR
    with pytest.raises(InvalidFieldsError, match="all pools, or some"):
        people.create_person("c", GOOD, actor=PROGRAM, role=Role.OPERATOR, pools=[pool], everywhere=True)


def test_new_role_replaces_the_role_of_the_same_scope(pool: Pool) -> None:
    actor = admin()
    user = people.create_person("op", GOOD, actor=actor, role=Role.VIEWER, everywhere=True)
    assert people.grant_role(user, Role.OPERATOR, actor=actor, pool=pool, why="covers for Lind")
    assert people.grant_role(user, Role.OPERATOR, actor=actor, pool=None)
    assert not people.grant_role(user, Role.OPERATOR, actor=actor, pool=None)
    assert (role_in(user), role_in(user, pool)) == (Role.OPERATOR, Role.OPERATOR)
    assert people.withdraw_role(user, actor=actor)
    assert not people.withdraw_role(user, actor=actor)
    assert (role_in(user), role_in(user, pool)) == (None, Role.OPERATOR)
    grants = AuditEvent.objects.filter(verb="person.grant").order_by("id")
    assert [event.pool_slug for event in grants] == ["chat", ""]
    assert grants[0].before["roles"] == {"everywhere": "viewer"}
    assert grants[0].after["roles"] == {"everywhere": "viewer", "chat": "operator"}


@pytest.mark.parametrize(
    "remove",
    [
        lambda user, actor: people.withdraw_role(user, actor=actor),
        lambda user, actor: people.grant_role(user, Role.VIEWER, actor=actor, pool=None),
        lambda user, actor: people.set_active(user, False, actor=actor),
    ],
)
def test_last_admin_cannot_be_removed(remove: Callable[[User, Actor], bool]) -> None:
    first = admin()
    with pytest.raises(InvalidFieldsError, match=r"last admin|yourself"):
        remove(first.user, PROGRAM)
    first.user.refresh_from_db()
    assert first.user.is_active
    assert RoleGrant.objects.get(user=first.user).role == Role.ADMIN
    second = admin("second")
    assert remove(first.user, second)


def test_people_cannot_deactivate_themselves() -> None:
    actor = admin()
    admin("second")
    with pytest.raises(InvalidFieldsError, match="yourself"):
        people.set_active(actor.user, False, actor=actor)


def test_deactivated_person_can_be_reactivated() -> None:
    actor = admin()
    user = people.create_person("op", GOOD, actor=actor, role=Role.VIEWER, everywhere=True)
    assert people.set_active(user, False, actor=actor)
    assert not people.set_active(user, False, actor=actor)
    assert role_in(User.objects.get(pk=user.pk)) is None
    assert people.set_active(user, True, actor=actor)
    assert role_in(User.objects.get(pk=user.pk)) == Role.VIEWER
    verbs = list(AuditEvent.objects.order_by("id").values_list("verb", flat=True))
    assert verbs == ["person.create", "person.deactivate", "person.activate"]


def test_password_is_set_only_by_admins_and_its_owner() -> None:
    actor = admin()
    user = people.create_person("op", GOOD, actor=actor)
    other = people.create_person("other", GOOD, actor=actor)
    people.set_password(user, CANARY, actor=actor)
    assert User.objects.get(pk=user.pk).check_password(CANARY)
    people.set_password(user, GOOD + "2", actor=person(user, via=CONSOLE))
    with pytest.raises(NotAllowedError):
        people.set_password(user, GOOD, actor=person(other, via=CONSOLE))
    with pytest.raises(InvalidFieldsError):
        people.set_password(user, "short", actor=actor)


def test_no_password_reaches_the_audit_or_the_log(caplog: pytest.LogCaptureFixture) -> None:
    actor = admin()
    user = people.create_person("op", CANARY, actor=actor)
    people.set_password(user, CANARY + "-2", actor=actor, why="asked for it")
    with pytest.raises(InvalidFieldsError) as caught:
        people.set_password(user, CANARY[:7], actor=actor)
    recorded = str(list(AuditEvent.objects.values())) + caplog.text + str(caught.value)
    assert CANARY[:7] not in recorded
    assert "asked for it" in recorded


@pytest.mark.parametrize("role", [None, Role.VIEWER, Role.OPERATOR])
def test_only_admins_change_people(role: Role | None) -> None:
    admin()
    user = people.create_person("op", GOOD, actor=PROGRAM, role=role, everywhere=role != Role.ADMIN)
    asker = person(User.objects.get(pk=user.pk), via=CONSOLE)
    for attempt in (
        lambda: people.create_person("new", GOOD, actor=asker),
        lambda: people.grant_role(user, Role.ADMIN, actor=asker, pool=None),
        lambda: people.withdraw_role(user, actor=asker),
        lambda: people.set_active(user, False, actor=asker),
    ):
        with pytest.raises(NotAllowedError):
            attempt()
    assert AuditEvent.objects.count() == 1
