"""The pages under Access (keys, people, sessions, tenants) require an admin. Everyone may see their own account."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from controlplane.access.models.console_session import ConsoleSession
from controlplane.access.models.person import Person, add_person
from controlplane.access.models.role_grant import RoleGrant
from controlplane.platform.models.api_key import ApiKey
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.models.tenant import Tenant
from tests.web.access.access_world import ADMIN_PAGES, CANARY, admin, fresh, new_key, tenant
from tests.web.role_clients import ROLES, client_of, make_person, make_pool

__all__ = ["admin", "fresh", "tenant"]

from tests.page_text import page_text
from web.access.login_throttle import LoginThrottle

pytestmark = pytest.mark.django_db
GOOD = "correct-horse-battery"
XSS = '"><img src=x onerror=alert(1)><script>alert(2)</script>'


def changes_of(tenant: Tenant, key: ApiKey, person: User) -> list[tuple[str, dict[str, object]]]:
    """Return every change that the pages under Access offer admins."""
    return [
        ("/access/keys", {"tenant": tenant.slug, "name": "new", "scopes": ["infer"], "expires": "30"}),
        (f"/access/keys/{key.key_id}", {"name": "renamed", "scopes": ["route"]}),
        (f"/access/keys/{key.key_id}/revoke", {}),
        ("/access/people", {"username": "new", "is_active": "on", "roles": ["*=viewer"]}),
        ("/access/people", {"person": person.username, "is_active": "on", "roles": ["*=operator"]}),
        (f"/access/people/{person.pk}/invite", {}),
        (f"/access/people/{person.pk}/password", {"password": GOOD}),
        (f"/access/people/{person.pk}/sign-out", {}),
        ("/access/people", {"person": person.username}),
        ("/access/sessions/end-all", {}),
        ("/access/tenants", {"slug": "new", "name": "New"}),
        (f"/access/tenants/{tenant.slug}", {"name": "Renamed"}),
        (f"/access/tenants/{tenant.slug}/delete", {}),
    ]


@pytest.mark.parametrize("role", ROLES)
def test_only_admins_see_and_change_access(role: str, tenant: Tenant) -> None:
    client, key, person = client_of(make_person(role, make_pool())), new_key(tenant), User.objects.create(username="x")
    is_admin = role in ("admin", "superuser")
    assert client.get("/access").status_code == 200
    assert client.get("/access/you").status_code == 200
    assert {client.get(page).status_code for page in ADMIN_PAGES} == {200 if is_admin else 403}
    before = AuditEvent.objects.count()
    for address, values in changes_of(tenant, key, person):
        status = client.post(address, values).status_code
        assert (status in (200, 303, 409)) if is_admin else status == 403, address
    assert (AuditEvent.objects.count() > before) is is_admin


# -- people


def test_person_is_added_with_roles_given_a_password_and_signed_out(admin: Client) -> None:
    make_pool()
    form = {"username": "op", "is_active": "on", "roles": ["chat=operator", "chat=viewer"], "why": "on call"}
    assert admin.post("/access/people", form)["Location"] == "/access/people?person=op&said=created"
    user = User.objects.get(username="op")
    assert (RoleGrant.objects.get(user=user).pool.slug, user.has_usable_password()) == ("chat", False)
    assert admin.post(f"/access/people/{user.pk}/password", {"password": CANARY + "-long"}).status_code == 303
    page = page_text(admin.get("/access/people?person=op"))
    assert "<dd>operator in chat</dd>" in page
    assert 'value="chat=operator" checked' in page
    assert CANARY not in page
    own = client_of(User.objects.get(pk=user.pk))
    assert own.get("/access/you").status_code == 200
    assert admin.post(f"/access/people/{user.pk}/sign-out")["Location"].endswith("said=signed-out")
    assert own.get("/access/you").status_code == 302


def test_roles_of_a_person_are_those_that_are_ticked(admin: Client) -> None:
    make_pool()
    admin.post("/access/people", {"username": "op", "is_active": "on"})
    person = Person.objects.get(username="op")
    for ticked in (["*=viewer", "chat=operator"], ["chat=operator"], []):
        form = {"person": "op", "is_active": "on", "roles": ticked, "revision": person.revision}
        assert admin.post("/access/people", form).status_code == 303
        person = Person.objects.get(username="op")
        assert (person.roles, person.is_active) == (ticked, True)
    page = page_text(admin.get("/access/people?person=op"))
    assert "<dd>no pool: no role</dd>" in page
    assert "<dd>nothing yet: send an invitation link</dd>" in page
    stale = {"person": "op", "is_active": "on", "roles": ["*=admin"], "revision": 1}
    assert admin.post("/access/people", stale).status_code == 412
    assert Person.objects.get(username="op").roles == []


def test_invalid_fields_of_a_person_are_marked_without_showing_the_password(admin: Client) -> None:
    answer = admin.post("/access/people", {"username": "a b", "roles": ["chat=admin"]})
    page = page_text(answer)
    assert answer.status_code == 422
    assert 'id="username-error"' in page
    answer = admin.post("/access/people", {"username": "ab", "roles": ["chat=admin"]})
    assert 'id="roles-error"' in page_text(answer)
    own = User.objects.get(username="admin")
    answer = admin.post(f"/access/people/{own.pk}/password", {"password": "canary"})
    assert answer.status_code == 422
    assert "too short" in page_text(answer)
    assert "canary" not in page_text(answer)


def test_deactivated_person_loses_access_at_once(admin: Client) -> None:
    user = make_person("operator")
    own = client_of(user)
    assert own.get("/").status_code == 200
    admin.post("/access/people", {"person": "operator", "roles": ["*=operator"]})
    assert own.get("/").status_code == 302
    assert "<dt>Active</dt><dd>no</dd>" in page_text(admin.get("/access/people?person=operator"))
    admin.post("/access/people", {"person": "operator", "roles": ["*=operator"], "is_active": "on"})
    assert User.objects.get(pk=user.pk).is_active


def test_last_admin_sees_why_they_cannot_be_removed(admin: Client) -> None:
    answer = admin.post("/access/people", {"person": "admin", "is_active": "on"})
    assert answer.status_code == 422
    assert "last admin" in page_text(answer)


def test_admin_who_changes_their_own_password_stays_signed_in(admin: Client) -> None:
    user = User.objects.get(username="admin")
    assert admin.post(f"/access/people/{user.pk}/password", {"password": GOOD}).status_code == 303
    assert admin.get("/access/people").status_code == 200


# -- sessions and the own account


def test_ended_session_is_redirected_to_the_login(admin: Client) -> None:
    own = Client(headers={"user-agent": "Mozilla/5.0 (X11; Linux x86_64) Chrome/156.0 Safari/537.36"})
    user = make_person("viewer")
    user.set_password(GOOD)
    user.save()
    own.post("/login", {"username": "viewer", "password": GOOD})
    page = page_text(admin.get("/access/sessions"))
    assert "Chrome 156, Linux" in page
    assert "127.0.0.1" in page
    assert own.session.session_key not in page
    session = ConsoleSession.objects.get(user=user)
    assert admin.post(f"/access/sessions/{session.session_id}/end").status_code == 303
    assert own.get("/").status_code == 302
    assert "viewer" not in page_text(admin.get("/access/sessions"))


def test_sign_out_ends_the_stored_session(admin: Client) -> None:
    admin.post("/logout")
    assert ConsoleSession.objects.get().ended_at is not None


def test_all_other_sessions_are_signed_out(admin: Client) -> None:
    others = [client_of(make_person(role)) for role in ("viewer", "operator")]
    assert admin.post("/access/sessions/end-all", {"why": "incident"}).status_code == 303
    assert [other.get("/").status_code for other in others] == [302, 302]
    assert admin.get("/access/sessions").status_code == 200


def test_people_cannot_end_sessions_of_others(admin: Client) -> None:
    viewer = client_of(make_person("viewer"))
    session = ConsoleSession.objects.get(user__username="admin")
    assert viewer.post(f"/access/sessions/{session.session_id}/end").status_code == 403
    own = ConsoleSession.objects.get(user__username="viewer")
    assert viewer.post(f"/access/sessions/{own.session_id}/end", {"back": "you"}).status_code == 303
    assert viewer.get("/access/you").status_code == 302


def test_own_password_change_requires_the_old_one_and_ends_other_sessions() -> None:
    user = make_person("nobody")
    user.set_password(GOOD)
    user.save()
    here, there = client_of(user), client_of(user)
    wrong = here.post("/access/you/password", {"old": "guess", "password": CANARY + "-long"})
    assert wrong.status_code == 422
    assert "not your current password" in page_text(wrong)
    assert here.post("/access/you/password", {"old": GOOD, "password": "short"}).status_code == 422
    assert here.post("/access/you/password", {"old": GOOD, "password": CANARY + "-long"}).status_code == 303
    assert here.get("/access/you").status_code == 200
    assert there.get("/access/you").status_code == 302
    assert User.objects.get(pk=user.pk).check_password(CANARY + "-long")
    assert "this session" in page_text(here.get("/access/you"))


def test_guesses_of_the_own_old_password_are_throttled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("web.access.you.LoginThrottle", lambda: LoginThrottle(lambda: 1000.0))
    user = make_person("nobody")
    user.set_password(GOOD)
    user.save()
    client = client_of(user)
    for _ in range(5):
        client.post("/access/you/password", {"old": "guess", "password": GOOD})
    page = page_text(client.post("/access/you/password", {"old": GOOD, "password": GOOD + "2"}))
    assert "Too many attempts. Try again in" in page
    assert User.objects.get(pk=user.pk).check_password(GOOD)


# -- tenants


def test_tenant_is_added_renamed_and_deleted_if_it_owns_no_key(admin: Client) -> None:
    assert admin.post("/access/tenants", {"slug": "globex", "name": "Globex"}).status_code == 303
    assert admin.post("/access/tenants", {"slug": "globex", "name": "Globex"}).status_code == 422
    assert admin.post("/access/tenants/globex", {"name": "Globex Corp", "revision": "1"}).status_code == 303
    assert admin.post("/access/tenants/globex", {"name": "Mine", "revision": "1"}).status_code == 412
    key = new_key(Tenant.objects.get(slug="globex"))
    answer = admin.post("/access/tenants/globex/delete")
    assert answer.status_code == 409
    assert "is used by" in page_text(answer)
    key.delete()
    assert admin.post("/access/tenants/globex/delete").status_code == 303
    assert not Tenant.objects.exists()


def test_tenant_is_limited_to_models_and_keeps_them_when_renamed(admin: Client, tenant: Tenant) -> None:
    form = {"name": "Acme", "revision": "1", "served_models": " m-8b, m-70b,, m-8b"}
    assert admin.post("/access/tenants/acme", form).status_code == 303
    tenant.refresh_from_db()
    assert tenant.served_models == ["m-70b", "m-8b"]
    assert 'value="m-70b, m-8b"' in page_text(admin.get("/access/tenants?tenant=acme"))
    assert admin.post("/access/tenants/acme", {"name": "Acme Corp", "revision": "2"}).status_code == 303
    tenant.refresh_from_db()
    assert (tenant.name, tenant.served_models) == ("Acme Corp", ["m-70b", "m-8b"])
    assert AuditEvent.objects.filter(verb="tenant.change").count() == 2


# -- what all pages keep


def test_markup_in_names_is_escaped(admin: Client, tenant: Tenant) -> None:
    key = new_key(tenant, XSS[:120])
    Tenant.objects.filter(pk=tenant.pk).update(name=XSS)
    ConsoleSession.objects.update(agent=XSS)
    pages = [
        *ADMIN_PAGES,
        "/access/you",
        f"/access/keys?key={key.key_id}&revoke",
        "/access/keys?new",
        f"/access/keys?q={XSS}",
        f"/access/people?q={XSS}",
        f"/access/people?person={XSS}",
        "/access/tenants?tenant=acme&delete",
        f"/audit?person={XSS}",
        "/audit",
    ]
    for page in pages:
        text = page_text(admin.get(page))
        assert "<img" not in text, page
        assert "<script>alert" not in text, page
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=\"|javascript:", text), page


@pytest.mark.parametrize(
    ("page", "queries"),
    [
        ("/access/keys", 7),
        ("/access/keys?new", 9),
        ("/access/people", 12),
        ("/access/sessions", 6),
        ("/access/tenants", 6),
        ("/access/you", 7),
    ],
)
def test_thousand_rows_take_as_many_queries_as_one(
    admin: Client, tenant: Tenant, page: str, queries: int, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    fill(tenant)
    admin.get(page)
    with django_assert_num_queries(queries):
        assert admin.get(page).status_code == 200


def fill(tenant: Tenant) -> None:
    """Store a thousand rows of everything."""
    now, pool = timezone.now(), make_pool()
    ApiKey.objects.bulk_create(
        ApiKey(tenant=tenant, name=f"k{number}", prefix="hw_", sha256=f"{number:064x}") for number in range(1000)
    )
    people = User.objects.bulk_create(User(username=f"p{number}") for number in range(1000))
    for user in people:
        add_person(user, created=True, raw=False)
    RoleGrant.objects.bulk_create(RoleGrant(user=user, role="viewer", pool=pool) for user in people)
    ConsoleSession.objects.bulk_create(
        ConsoleSession(user=user, session_key=f"s{user.pk}", started_at=now, seen_at=now) for user in people
    )
    Tenant.objects.bulk_create(Tenant(slug=f"t{number}", name="T") for number in range(1000))
