"""API keys in the console are shown once, limited, revoked, and never logged."""

from __future__ import annotations

import json
import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from controlplane.platform.bus import get_bus
from controlplane.platform.models.api_key import ApiKey, hash_api_key
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.models.tenant import Tenant
from controlplane.platform.snapshot_change import TOPIC
from gateway.contracts.snapshot import decode_snapshot
from tests.page_text import page_text
from tests.web.access.access_world import ADMIN_PAGES, CANARY, admin, fresh, new_key, tenant

__all__ = ["admin", "fresh", "tenant"]

pytestmark = pytest.mark.django_db


def test_new_key_text_is_shown_once_and_accepted_by_the_gateway(admin: Client, tenant: Tenant) -> None:
    form = {
        "tenant": "acme",
        "name": "chat",
        "scopes": ["infer", "route"],
        "expires": "30",
        "rate_per_min": "60",
        "max_in_flight": "4",
        "slo_class": "chat",
        "why": "new front-end",
        "form_id": "f1",
    }
    answer = admin.post("/access/keys", form)
    page = page_text(answer)
    text = re.search(r'value="(hw_[\w-]{40,})"', page)
    assert text is not None
    assert "no-store" in answer["Cache-Control"]
    key = ApiKey.objects.get(name="chat")
    assert key.sha256 == hash_api_key(text[1])
    assert timedelta(days=29) < key.expires_at - timezone.now() <= timedelta(days=30)
    assert (key.scopes, key.rate_per_min, key.max_in_flight) == (["infer", "route"], 60, 4)
    assert key.slo_class == "chat"
    again = [page_text(admin.get(f"/access/keys{query}")) for query in ("", f"?key={key.key_id}", "?q=chat")]
    assert all(text[1] not in item for item in again)


def test_same_form_sent_twice_creates_one_key(admin: Client, tenant: Tenant) -> None:
    form = {"tenant": "acme", "name": "chat", "scopes": ["infer"], "expires": "never", "form_id": "f1"}
    assert admin.post("/access/keys", form).status_code == 200
    second = admin.post("/access/keys", form)
    assert second.status_code == 422
    assert "already submitted" in page_text(second)
    assert ApiKey.objects.count() == 1


def test_invalid_form_reports_all_errors_and_keeps_the_input(admin: Client, tenant: Tenant) -> None:
    form = {"tenant": "gone", "name": "kept-name", "expires": "tomorrow", "rate_per_min": "many", "form_id": "f1"}
    answer = admin.post("/access/keys", form)
    page = page_text(answer)
    assert answer.status_code == 422
    for path in ("tenant", "expires", "rate_per_min"):
        assert f'id="{path}-error"' in page
    classless = admin.post(
        "/access/keys",
        form | {"tenant": "acme", "expires": "30", "scopes": ["infer"], "rate_per_min": "", "slo_class": "No Class!"},
    )
    assert 'id="slo_class-error"' in page_text(classless)
    assert 'value="kept-name"' in page
    assert 'value="many"' in page
    form |= {"tenant": "acme", "expires": "30", "rate_per_min": "0"}
    page = page_text(admin.post("/access/keys", form))
    assert 'id="scopes-error"' in page
    form |= {"scopes": ["infer"], "name": ""}
    page = page_text(admin.post("/access/keys", form))
    assert 'id="name-error"' in page
    assert 'id="rate_per_min-error"' in page
    assert not ApiKey.objects.exists()
    assert admin.post("/access/keys", form | {"name": "now", "rate_per_min": ""}).status_code == 200


def test_revoked_key_leaves_the_snapshot_at_once(
    admin: Client, tenant: Tenant, django_capture_on_commit_callbacks: object
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        key = new_key(tenant)
    assert [entry.key_id for entry in decode_snapshot(get_bus().latest(TOPIC)).api_keys] == [key.key_id]
    with django_capture_on_commit_callbacks(execute=True):
        answer = admin.post(f"/access/keys/{key.key_id}/revoke", {"why": "leaked"})
    assert answer["Location"] == "/access/keys?said=key-revoked"
    assert decode_snapshot(get_bus().latest(TOPIC)).api_keys == ()
    event = AuditEvent.objects.get(verb="key.revoke")
    assert (event.actor_name, event.why) == ("admin", "leaked")
    page = page_text(admin.get("/access/keys?said=key-revoked"))
    assert "within 5 s" in page
    assert key.prefix not in page_text(admin.get("/access/keys"))
    assert key.prefix in page_text(admin.get("/access/keys?state=revoked"))


def test_slower_editor_overwrites_nothing_of_the_faster_one(admin: Client, tenant: Tenant) -> None:
    key = new_key(tenant)
    form = {"name": "mine", "scopes": ["infer"], "revision": str(key.revision)}
    assert admin.post(f"/access/keys/{key.key_id}", form | {"name": "theirs"}).status_code == 303
    answer = admin.post(f"/access/keys/{key.key_id}", form)
    assert answer.status_code == 412
    assert 'value="theirs"' in page_text(answer)
    key.refresh_from_db()
    assert key.name == "theirs"


def test_states_of_keys_are_distinguished(admin: Client, tenant: Tenant) -> None:
    now = timezone.now()
    new_key(tenant, "long", expires_at=now + timedelta(days=90))
    new_key(tenant, "soon", expires_at=now + timedelta(days=2))
    new_key(tenant, "over", expires_at=now - timedelta(days=2))
    page = page_text(admin.get("/access/keys"))
    assert "<h1>2 active API keys, 1 expires within 7 days</h1>" in page
    assert "1 key has expired" in page
    assert ">over</a>" not in page
    assert ">over</a>" in page_text(admin.get("/access/keys?state=expired"))
    assert ">soon</a>" not in page_text(admin.get("/access/keys?q=long"))
    assert "No keys match" in page_text(admin.get("/access/keys?q=nothing"))


def test_secrets_do_not_appear_in_pages_log_and_audit(
    admin: Client, tenant: Tenant, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    made = admin.post("/access/keys", {"tenant": "acme", "name": "k", "scopes": ["infer"], "expires": "30"})
    text = re.search(r'value="(hw_[\w-]{40,})"', page_text(made))[1]
    key = ApiKey.objects.get(name="k")
    admin.post("/access/people", {"username": "op", "password": CANARY + "-long", "role": "viewer"})
    op = User.objects.get(username="op")
    admin.post(f"/access/people/{op.pk}/password", {"password": CANARY + "-more"})
    admin.post(f"/access/keys/{key.key_id}", {"name": "k2", "scopes": ["route"]})
    admin.post(f"/access/keys/{key.key_id}/revoke")
    events = json.dumps(list(AuditEvent.objects.values("before", "after", "why", "object_id")), default=str)
    seen = [events, caplog.text, page_text(admin.get("/audit/events.json"))]
    seen += [page_text(admin.get(page)) for page in (*ADMIN_PAGES, f"/access/keys?key={key.key_id}", "/audit")]
    seen += [page_text(admin.get(f"/audit?event={event.pk}")) for event in AuditEvent.objects.all()]
    for secret in (text, text[11:], key.sha256, CANARY, op.password):
        assert not [item for item in seen if secret in item]


def test_rotated_key_shows_the_new_secret_once_and_both_last_uses(admin: Client, tenant: Tenant) -> None:
    key = new_key(tenant, "chat")
    dialog = page_text(admin.get(f"/access/keys?key={key.key_id}&rotate"))
    assert "Rotate chat?" in dialog
    form = {"overlap_h": "24", "form_id": "f2", "why": "yearly"}
    text = re.search(r'value="(hw_[\w-]{40,})"', page_text(admin.post(f"/access/keys/{key.key_id}/rotate", form)))
    assert text is not None
    assert ApiKey.objects.get().sha256 == hash_api_key(text[1])
    assert admin.post(f"/access/keys/{key.key_id}/rotate", form).status_code == 422
    page = page_text(admin.get(f"/access/keys?key={key.key_id}"))
    assert text[1] not in page
    assert "Previous secret" in page
    assert f"{key.prefix}…" in page
    admin.post(f"/access/keys/{key.key_id}/end-previous")
    assert "Previous secret" not in page_text(admin.get(f"/access/keys?key={key.key_id}"))
    assert list(AuditEvent.objects.order_by("pk").values_list("verb", flat=True))[-2:] == [
        "key.rotate",
        "key.end_previous",
    ]
