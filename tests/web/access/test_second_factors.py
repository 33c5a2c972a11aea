"""Second factors: authenticator apps, recovery codes, who may reset them, and what they protect."""

from __future__ import annotations

import json
import re
import time

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal import auth as totp
from django.contrib.auth.models import User
from django.test import Client

from controlplane.access.second_factors import (
    change_sign_in_policy,
    check_code,
    encrypt_all_again,
    passkeys_missing,
    sign_in_policy,
)
from controlplane.platform.actor import person
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.outage.unwritable import Cause, DatabaseWrites
from tests.page_text import page_text
from tests.web.access.access_world import fresh
from tests.web.role_clients import client_of, make_person
from web.access.factors import LATELY_S
from web.access.login_throttle import MAX_CODES
from web.access.sign_in_steps import SIGNED_IN_AT

__all__ = ["fresh"]
pytestmark = pytest.mark.django_db
OWN, RIGHT = "/access/you", {"username": "ann", "password": "correct horse battery"}


@pytest.fixture
def ann(fresh: None) -> User:
    return User.objects.create_superuser("ann", password=RIGHT["password"])


@pytest.fixture
def root() -> User:
    return User.objects.create_superuser("root")


def signed_in() -> Client:
    client = Client()
    assert client.post("/login", RIGHT)["Location"] == "/"
    return client


def code_of(secret: str, later: int = 0) -> str:
    """Return the app's code now, or that of a later half minute."""
    return totp.format_hotp_value(totp.hotp_value(secret, int(time.time()) // 30 + later))


def with_app(client: Client) -> tuple[str, list[str]]:
    """Add an authenticator app. Return its secret and the recovery codes."""
    assert "data:image/svg+xml" in page_text(client.get(f"{OWN}/app"))
    secret = client.session[totp.SECRET_SESSION_KEY]
    assert client.post(f"{OWN}/app", {"code": "000000"}).status_code == 422
    page = page_text(client.post(f"{OWN}/app", {"code": code_of(secret)}))
    return secret, re.findall(r"<li><code>(\d{8})</code>", page)


def at_second_step() -> Client:
    client = Client()
    assert client.post("/login", {**RIGHT, "next": "/audit"})["Location"] == "/login/second"
    assert client.get("/audit").status_code == 302
    return client


def test_a_password_alone_no_longer_signs_in(ann: User) -> None:
    secret, _ = with_app(signed_in())
    client = at_second_step()
    assert "wrong" in page_text(client.post("/login/second", {"code": "123456"}))
    assert client.get("/audit").status_code == 302
    code = code_of(secret, later=1)
    assert client.post("/login/second", {"code": code})["Location"] == "/audit"
    assert client.get("/audit").status_code == 200
    assert ann.console_sessions.first().method == "password and code"
    other = at_second_step()
    assert "used before" in page_text(other.post("/login/second", {"code": code}))


def test_each_recovery_code_works_once(ann: User) -> None:
    client = signed_in()
    _, codes = with_app(client)
    assert len(codes) == 10
    assert at_second_step().post("/login/second", {"code": codes[0]})["Location"] == "/audit"
    assert at_second_step().post("/login/second", {"code": codes[0]}).status_code == 200
    assert "9 recovery codes left" in page_text(client.get(OWN))
    with_app(client)
    assert at_second_step().post("/login/second", {"code": codes[1]}).status_code == 200
    assert AuditEvent.objects.filter(verb="person.use_recovery_code").count() == 1


def test_guesses_of_codes_run_out_whatever_browser_and_password_say(ann: User) -> None:
    secret, _ = with_app(signed_in())
    client = at_second_step()
    for _ in range(MAX_CODES):
        assert client.post("/login/second", {"code": "123456"}).status_code == 200
    assert at_second_step().post("/login/second", {"code": code_of(secret, later=1)}).status_code == 429


def test_the_second_step_ends_with_time_and_with_a_new_password(ann: User, monkeypatch: pytest.MonkeyPatch) -> None:
    secret, _ = with_app(signed_in())
    client, late = at_second_step(), at_second_step()
    ann.set_password("another horse battery")
    ann.save()
    assert client.post("/login/second", {"code": code_of(secret, later=1)})["Location"] == "/login?late"
    now = time.time()
    monkeypatch.setattr("web.access.sign_in_steps.time.time", lambda: now + 301)
    assert late.get("/login/second")["Location"] == "/login?late"


def test_secrets_are_encrypted_and_survive_a_rotation_of_the_key(ann: User, settings: object) -> None:
    secret, codes = with_app(signed_in())
    stored = json.dumps(list(Authenticator.objects.values_list("data", flat=True)))
    assert secret not in stored
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "n" * 50, [settings.SECRET_KEY]
    actor = person(ann, via="console")
    assert check_code(ann, codes[0], actor=actor) == "recovery code"
    encrypt_all_again()
    settings.SECRET_KEY_FALLBACKS = []
    assert check_code(ann, code_of(secret, later=1), actor=actor) == "code"
    assert check_code(ann, codes[1], actor=actor) == "recovery code"


def test_factors_change_only_soon_after_a_sign_in(ann: User) -> None:
    client = signed_in()
    with_app(client)
    session = client.session
    session[SIGNED_IN_AT] -= LATELY_S
    session.save()
    factor = Authenticator.objects.get(type="totp")
    for path in (f"factors/{factor.pk}/remove", "passkeys/options"):
        assert client.post(f"{OWN}/{path}")["Location"] == f"{OWN}?said=sign-in-again"
    assert Authenticator.objects.filter(pk=factor.pk).exists()


def test_removing_the_last_factor_removes_recovery_codes_and_others_factors_stay(ann: User) -> None:
    other = User.objects.create_superuser("ben", password="x")
    theirs = Authenticator.objects.create(user=other, type="webauthn", data={"name": "x"})
    client = signed_in()
    with_app(client)
    assert client.post(f"{OWN}/factors/{theirs.pk}/remove")["Location"] == f"{OWN}?said=nothing"
    client.post(f"{OWN}/factors/{Authenticator.objects.get(type='totp').pk}/remove")
    assert list(Authenticator.objects.all()) == [theirs]
    assert signed_in().get("/audit").status_code == 200


def require_factors(rule: str) -> None:
    change_sign_in_policy(
        sign_in_policy(), {"second_factor": rule}, actor=person(User.objects.get(username="root"), via="test")
    )


@pytest.mark.parametrize(("rule", "asked"), [("off", False), ("admins", True), ("everyone", True)])
def test_the_policy_asks_those_without_a_factor_at_their_next_sign_in(
    ann: User, root: User, rule: str, asked: bool
) -> None:
    before = signed_in()
    require_factors(rule)
    client = signed_in()
    assert (client.get("/audit").headers.get("Location") == f"{OWN}?said=enroll") == asked
    assert client.get("/api/v1/audit").status_code == (403 if asked else 200)
    assert before.get("/audit").status_code == 200
    assert AuditEvent.objects.filter(verb="person.sign_in_without_factor").count() == asked


def test_a_new_factor_opens_the_console_and_the_last_one_stays(ann: User, root: User) -> None:
    require_factors("everyone")
    client = signed_in()
    assert "Add a second factor to continue" in page_text(client.get(f"{OWN}?said=enroll"))
    with_app(client)
    assert client.get("/audit").status_code == 200
    number = Authenticator.objects.get(type=Authenticator.Type.TOTP).pk
    assert client.post(f"{OWN}/factors/{number}/remove")["Location"] == f"{OWN}?said=factor-required"
    assert Authenticator.objects.filter(user=ann).count() == 2
    require_factors("off")
    assert client.post(f"{OWN}/factors/{number}/remove")["Location"] == f"{OWN}?said=factor-removed"


def test_the_policy_waits_while_no_factor_can_be_stored(ann: User, root: User, monkeypatch: pytest.MonkeyPatch) -> None:
    require_factors("everyone")
    monkeypatch.setattr(DatabaseWrites, "failing", Cause.READ_ONLY)
    assert signed_in().get("/audit").status_code == 200


def test_an_admin_changes_the_policy_and_the_audit_has_both_states(ann: User) -> None:
    change = {"second_factor": "admins", "revision": "1", "why": "an auditor asked"}
    address, admin = "/access/people/sign-in-policy", signed_in()
    assert client_of(make_person("viewer")).post(address, change).status_code == 403
    assert "Who must have a second factor?" in page_text(admin.get("/access/people?policy"))
    assert admin.post(address, change)["Location"] == "/access/people?said=policy-changed"
    assert "said=stale-policy" in admin.post(address, change)["Location"]
    event = AuditEvent.objects.get(verb="sign_in_policy.change")
    assert (event.before["second_factor"], event.after["second_factor"], event.why) == ("off", "admins", change["why"])


def test_admins_reset_factors_and_others_cannot(ann: User) -> None:
    with_app(signed_in())
    path = f"/access/people/{ann.pk}/reset-factors"
    assert client_of(make_person("operator")).post(path).status_code == 403
    admin = client_of(make_person("admin"))
    assert "authenticator app" in page_text(admin.get("/access/people"))
    admin.post(path, {"why": "lost phone"})
    assert not Authenticator.objects.exists()
    event = AuditEvent.objects.get(verb="person.reset_factors")
    assert (event.object_id, event.actor_name, event.why) == ("ann", "admin", "lost phone")


@pytest.mark.parametrize(
    ("host", "secure", "reason"),
    [
        ("127.0.0.1:8000", True, "IP address"),
        ("[::1]:8000", True, "IP address"),
        ("10.0.0.7", True, "IP address"),
        ("headway.example.com", False, "HTTPS"),
        ("headway.example.com", True, ""),
        ("localhost:8000", False, ""),
    ],
)
def test_passkeys_are_offered_where_browsers_offer_them(host: str, secure: bool, reason: str) -> None:
    missing = passkeys_missing(host, secure)
    assert reason in missing
    assert bool(reason) == bool(missing)


def test_a_forged_passkey_signs_no_one_in(ann: User) -> None:
    client = Client(headers={"host": "localhost"})
    assert client.post("/login/passkey/options").json()["publicKey"]["userVerification"] == "required"
    for body in ({}, {"id": "AA", "rawId": "AA", "type": "public-key", "response": {"userHandle": "MQ"}}, [1], "x"):
        answer = client.post("/login/passkey", json.dumps(body), content_type="application/json")
        assert answer.status_code == 403
    assert "_auth_user_id" not in client.session
