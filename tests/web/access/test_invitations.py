"""Invitation links: shown once, stored nowhere, used once; time, newer links, and changes of the person end them."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

import pytest
from django.core import serializers
from django.test import Client

from controlplane.access import invitations
from controlplane.access.invitations import LASTS, accept, invite, invited
from controlplane.access.models.person import Person
from controlplane.access.people import change_person, create_person
from controlplane.platform.actor import CONSOLE, program
from controlplane.platform.field_problems import InvalidFieldsError
from controlplane.platform.models.audit_event import AuditEvent
from tests.page_text import page_text
from tests.web.role_clients import client_of, make_person

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("feed")]
ACTOR = program("t")
GOOD = "correct-horse-battery"


@pytest.fixture
def person(db: None) -> Person:
    return create_person("op", actor=ACTOR, roles=["*=viewer"])


def test_a_person_sets_a_password_by_the_link_and_is_signed_in(person: Person) -> None:
    admin, own = client_of(make_person("admin")), Client()
    page = page_text(admin.post(f"/access/people/{person.pk}/invite"))
    match = re.search(r"http://testserver(/login/invitation/[^\"]+)", page)
    assert match is not None
    link = match[1]
    assert link not in page_text(admin.get("/access/people?person=op"))
    form = page_text(own.get(link))
    assert "Choose a password for op." in form
    weak = own.post(link, {"password": "12345"})
    assert (weak.status_code, "too short" in page_text(weak)) == (422, True)
    assert own.post(link, {"password": GOOD})["Location"] == "/"
    assert own.get("/access/you").status_code == 200
    for answer in (Client().get(link), Client().post(link, {"password": f"{GOOD}-2"})):
        assert answer.status_code == 404
        assert "This invitation was used, has expired, or was replaced." in page_text(answer)
    assert Client().login(username="op", password=GOOD)
    events = AuditEvent.objects.filter(verb__in=("person.invite", "person.set_password")).order_by("id")
    assert [(event.verb, event.actor_name) for event in events] == [
        ("person.invite", "admin"), ("person.set_password", "op"),
    ]  # fmt: skip
    code = link.rpartition("-")[2]
    assert code not in serializers.serialize("json", [*AuditEvent.objects.all(), *Person.objects.all()])


@pytest.mark.parametrize("text", ["", "1", "-", "x-y", "9-", "99999999999999999999-x", "1-\0"])
def test_wrong_codes_name_no_person(person: Person, text: str) -> None:
    assert invited(text) is None
    assert accept(text, GOOD, via=CONSOLE) is None


def test_a_newer_link_a_change_and_time_end_a_link(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    make_person("admin")
    first, second = invite(person, actor=ACTOR), invite(person, actor=ACTOR)
    assert invited(first) is None
    assert invited(second) == person
    assert invited(f"{person.pk + 1}-{second.partition('-')[2]}") is None
    now = datetime.now()
    for after, lasts in ((LASTS - timedelta(minutes=1), True), (LASTS + timedelta(minutes=1), False)):
        monkeypatch.setattr(invitations._codes, "_now", lambda after=after: now + after)
        assert (invited(second) is not None) is lasts
    monkeypatch.undo()
    change_person(person, {"is_active": True, "roles": ["*=operator"]}, actor=ACTOR)
    assert invited(second) is None
    third = invite(person, actor=ACTOR)
    change_person(person, {"is_active": False, "roles": ["*=operator"]}, actor=ACTOR)
    assert invited(third) is None
    with pytest.raises(InvalidFieldsError, match="activate them first"):
        invite(person, actor=ACTOR)
