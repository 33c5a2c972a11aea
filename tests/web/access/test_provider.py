"""Sign-in by a real OpenID provider: discovery, PKCE, signed id tokens, roles of groups, and what is rejected."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import pytest
from allauth.socialaccount.models import SocialAccount
from django.contrib.auth.models import User
from django.test import Client

from controlplane.access.group_grants import create_grant, delete_grant
from controlplane.access.models.console_session import ConsoleSession
from controlplane.access.models.group_grant import GroupGrant
from controlplane.access.models.person import Person
from controlplane.access.models.role_grant import RoleGrant
from controlplane.access.people import change_person, create_person
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.role import Role
from controlplane.platform.roles import role_in
from tests.page_text import page_text
from tests.web.access.access_world import PROGRAM, fresh
from tests.web.access.oidc_provider import CLIENT, SECRET, Provider, running_provider
from tests.web.fleet.topology.test_page import make_pool

__all__ = ["fresh"]
pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def server() -> Iterator[Provider]:
    with running_provider() as provider:
        yield provider


@pytest.fixture
def provider(server: Provider, settings: object) -> Provider:
    settings.OIDC_ISSUER, settings.OIDC_CLIENT_ID, settings.OIDC_CLIENT_SECRET = server.issuer, CLIENT, SECRET
    server.fails("")
    server.has("anna-1", preferred_username="anna", email="anna@example.com", groups=["sre"])
    return server


def entered(provider: Provider, client: Client, subject: str = "anna-1", page: str = "/engines") -> object:
    """Return the response to the provider's redirect."""
    begun = client.get(f"/login/provider?next={page}")
    assert begun.status_code == 302
    return client.get(provider.signs_in(begun["Location"], subject))


def test_first_sign_in_adds_a_person_with_the_roles_of_their_groups(provider: Provider) -> None:
    pool = make_pool()
    create_grant("sre", "operator", pool=pool.slug, actor=PROGRAM)
    create_grant("others", "admin", actor=PROGRAM)
    client = Client()
    answer = entered(provider, client)
    assert (answer.status_code, answer["Location"]) == (302, "/engines")
    anna = User.objects.get(username="anna")
    assert (role_in(anna, pool), role_in(anna)) == (Role.OPERATOR, None)
    assert not anna.has_usable_password()
    assert ConsoleSession.objects.get().method == "provider"
    assert client.get("/access/you").status_code == 200
    assert client.session.get_expiry_age() <= 12 * 3600
    assert "Second factors" not in page_text(client.get("/access/you"))
    assert client.post("/access/you/passkeys/options").status_code == 403
    verbs = set(AuditEvent.objects.values_list("verb", flat=True))
    assert {"person.create", "person.roles_of_groups"} <= verbs
    client.post("/logout")
    assert client.get("/engines").status_code == 302


def test_each_sign_in_has_its_own_state_nonce_and_code_challenge(provider: Provider) -> None:
    asked = [parse_qs(urlsplit(Client().get("/login/provider")["Location"]).query) for _ in range(2)]
    assert all(one["code_challenge_method"] == ["S256"] for one in asked)
    for name in ("state", "nonce", "code_challenge"):
        assert asked[0][name] != asked[1][name]
    client = Client()
    address = client.get("/login/provider")["Location"]
    client.get(provider.signs_in(address, "anna-1"))
    sent = provider.exchanges()[-1]
    digest = base64.urlsafe_b64encode(hashlib.sha256(sent["code_verifier"].encode()).digest())
    assert [digest.decode().rstrip("=")] == parse_qs(urlsplit(address).query)["code_challenge"]


def test_signing_in_replaces_the_session_that_the_browser_had(provider: Provider) -> None:
    client = Client()
    address = client.get("/login/provider")["Location"]
    before = client.session.session_key
    client.get(provider.signs_in(address, "anna-1"))
    assert client.session.session_key != before
    assert not Client(cookies={"sessionid": before}).session.get("_auth_user_id")


@pytest.mark.parametrize(
    "fault", ["nonce", "expired", "audience", "issuer", "party", "subject", "none", "secret", "key"]
)
def test_wrong_id_tokens_sign_no_one_in(provider: Provider, fault: str) -> None:
    provider.fails(fault)
    client = Client()
    answer = entered(provider, client)
    assert answer.status_code in (401, 403)
    assert "provider" in page_text(answer)
    assert not User.objects.exists()
    assert "_auth_user_id" not in client.session


def test_the_provider_can_rotate_its_signing_key(provider: Provider) -> None:
    assert entered(provider, Client()).status_code == 302
    provider.rotate()
    assert entered(provider, Client()).status_code == 302
    assert User.objects.count() == 1


def test_an_answer_counts_once_and_only_in_the_browser_that_asked(provider: Provider) -> None:
    client = Client()
    address = client.get("/login/provider")["Location"]
    answer = provider.signs_in(address, "anna-1")
    assert Client().get(answer).status_code == 401
    assert client.get(answer).status_code == 302
    client.post("/logout")
    assert client.get(answer).status_code == 401


def test_names_and_addresses_link_no_accounts(provider: Provider) -> None:
    local = create_person("anna", "correct horse battery", actor=PROGRAM, roles=["*=admin"])
    local.email = "anna@example.com"
    local.save()
    client = Client()
    entered(provider, client)
    other = SocialAccount.objects.get().user
    assert (other.username, role_in(other)) == ("anna-2", None)
    provider.has("anna-1", preferred_username="renamed", groups=[])
    entered(provider, Client())
    assert SocialAccount.objects.get().user == other


def test_roles_of_a_group_go_with_the_group_and_those_of_admins_stay(provider: Provider) -> None:
    create_grant("sre", "operator", actor=PROGRAM)
    entered(provider, Client())
    anna = User.objects.get()
    RoleGrant.objects.create(user=anna, role="viewer")
    assert role_in(User.objects.get()) == Role.OPERATOR
    provider.has("anna-1", preferred_username="anna", groups=[])
    entered(provider, Client())
    assert role_in(User.objects.get()) == Role.VIEWER


def test_a_changed_group_role_applies_without_another_sign_in(provider: Provider) -> None:
    entered(provider, Client())
    create_grant("sre", "operator", actor=PROGRAM)
    assert role_in(User.objects.get()) == Role.OPERATOR
    delete_grant(GroupGrant.objects.get(), actor=PROGRAM)
    assert role_in(User.objects.get()) is None


def test_a_deactivated_person_stays_out(provider: Provider) -> None:
    entered(provider, Client())
    create_person("root", None, actor=PROGRAM, roles=["*=admin"])
    change_person(Person.objects.get(username="anna"), {"is_active": False}, actor=PROGRAM)
    answer = entered(provider, Client())
    assert answer.status_code == 403
    assert "deactivated" in page_text(answer)


def test_an_unreachable_provider_leaves_the_password(provider: Provider, settings: object) -> None:
    create_person("root", "correct horse battery", actor=PROGRAM, roles=["*=admin"])
    settings.OIDC_ISSUER = "http://127.0.0.1:9"
    client = Client()
    answer = client.get("/login/provider")
    assert answer.status_code == 502
    assert "does not answer" in page_text(answer)
    assert client.post("/login", {"username": "root", "password": "correct horse battery"}).status_code == 302
    event = AuditEvent.objects.get(verb="person.sign_in_locally")
    assert (event.object_id, event.after["method"]) == ("root", "password")
