"""Admins create and change people. The audit omits their secrets, and at least one admin remains."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from controlplane.access import people
from controlplane.access.models.person import Person
from controlplane.access.models.role_grant import RoleGrant
from controlplane.fleet.models.pool import Pool
from controlplane.platform.actor import CONSOLE, Actor, person, program
from controlplane.platform.field_problems import InvalidFieldsError
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.revisions import StaleRevisionError
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
    user = people.create_person("op", GOOD, actor=admin(), roles=["chat=operator"], why="on call")
    assert user.check_password(GOOD)
    assert role_in(user, pool) == Role.OPERATOR
    assert role_in(user) is None
    event = AuditEvent.objects.get(verb="person.create")
    assert event.after == {
        "username": "op", "is_active": True, "is_superuser": False, "revision": 1, "roles": ["chat=operator"],
        "group_roles": [],
    }  # fmt: skip
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


@pytest.mark.parametrize("wrong", ["chat=admin", "nowhere=viewer", "chat", "chat=owner", "=viewer", ""])
def test_unknown_roles_are_rejected(pool: Pool, wrong: str) -> None:
    person = people.create_person("op", GOOD, actor=PROGRAM, roles=["chat=viewer"])
    for attempt in (
        lambda: people.create_person("other", GOOD, actor=PROGRAM, roles=["*=viewer", wrong]),
        lambda: people.change_person(person, {"roles": ["*=viewer", wrong]}, actor=PROGRAM),
    ):
        with pytest.raises(InvalidFieldsError) as caught:
            attempt()
        assert [problem.path for problem in caught.value.problems] == ["roles"]
    assert person.roles == ["chat=viewer"]


def test_highest_of_several_roles_in_a_pool_applies(pool: Pool) -> None:
    person = people.create_person(
        "op", GOOD, actor=PROGRAM, roles=["*=operator", "chat=operator", "chat=viewer", "*=viewer"]
    )
    assert person.roles == ["*=operator", "chat=operator"]
    assert people.create_person("boss", GOOD, actor=PROGRAM, roles=["*=viewer", "*=admin"]).roles == ["*=admin"]
    assert people.create_person("x", GOOD, actor=PROGRAM).roles == []


def test_change_replaces_the_roles_that_admins_gave(pool: Pool) -> None:
    actor = admin()
    person = people.create_person("op", GOOD, actor=actor, roles=["*=viewer"])
    RoleGrant.objects.create(user=person, pool=pool, role=Role.VIEWER, by_group="eng")
    changed = people.change_person(person, {"roles": ["chat=operator"]}, actor=actor, expected=1, why="covers for Lind")
    assert (role_in(changed), role_in(changed, pool)) == (None, Role.OPERATOR)
    assert (changed.revision, changed.roles, changed.group_roles) == (2, ["chat=operator"], ["chat=viewer by eng"])
    assert people.change_person(person, {"roles": ["chat=operator"]}, actor=actor).revision == 2
    event = AuditEvent.objects.get(verb="person.change")
    assert (event.before["roles"], event.after["roles"], event.why) == (
        ["*=viewer"],
        ["chat=operator"],
        "covers for Lind",
    )
    with pytest.raises(StaleRevisionError):
        people.change_person(person, {"roles": []}, actor=actor, expected=1)


@pytest.mark.parametrize("changes", [{"roles": []}, {"roles": ["*=viewer"]}, {"is_active": False}])
def test_last_admin_cannot_be_removed(changes: dict[str, object]) -> None:
    first = admin()
    with pytest.raises(InvalidFieldsError, match=r"last admin"):
        people.change_person(first.user.person, changes, actor=PROGRAM)
    stored = User.objects.get(pk=first.user.pk)
    assert stored.is_active
    assert stored.person.revision == 1
    assert RoleGrant.objects.get(user=stored).role == Role.ADMIN
    second = admin("second")
    assert people.change_person(stored.person, changes, actor=second).revision == 2


def test_people_cannot_deactivate_themselves() -> None:
    actor = admin()
    admin("second")
    with pytest.raises(InvalidFieldsError, match="yourself"):
        people.change_person(actor.user.person, {"is_active": False}, actor=actor)


def test_deactivated_person_can_be_reactivated() -> None:
    actor = admin()
    user = people.create_person("op", GOOD, actor=actor, roles=["*=viewer"])
    for active, role in ((False, None), (False, None), (True, Role.VIEWER)):
        assert people.change_person(user, {"is_active": active}, actor=actor).roles == ["*=viewer"]
        assert role_in(User.objects.get(pk=user.pk)) == role
    changes = [(event.before["is_active"], event.after["is_active"]) for event in AuditEvent.objects.order_by("id")[1:]]
    assert changes == [(True, False), (False, True)]


def test_every_account_is_a_person() -> None:
    plain, root = User.objects.create(username="plain"), User.objects.create_superuser("root", password=GOOD)
    assert set(Person.objects.values_list("username", "revision", "time_zone")) == {("plain", 1, ""), ("root", 1, "")}
    plain.email = "plain@example.com"
    plain.save()
    assert Person.objects.get(username="plain").email == "plain@example.com"
    root.delete()
    assert Person.objects.get().username == "plain"


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
    user = people.create_person("op", GOOD, actor=PROGRAM, roles=[f"*={role}"] if role else ())
    asker = person(User.objects.get(pk=user.pk), via=CONSOLE)
    for attempt in (
        lambda: people.create_person("new", GOOD, actor=asker),
        lambda: people.change_person(user, {"roles": ["*=admin"]}, actor=asker),
        lambda: people.change_person(user, {"is_active": False}, actor=asker),
    ):
        with pytest.raises(NotAllowedError):
            attempt()
    assert AuditEvent.objects.count() == 1
