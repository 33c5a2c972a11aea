"""People without the role for an action under Trials and Policies see the required role, and never its form."""

from __future__ import annotations

from html import unescape

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from controlplane.fleet.models.pool import Pool
from controlplane.fleet.topology import change_pool
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.request_log.models.recording import Recording
from controlplane.trials.canary.lifecycle import start_canary
from controlplane.trials.models.shadow import Shadow
from controlplane.trials.shadow.lifecycle import observe_pools, start_shadow
from tests.controlplane.trials.canary.scene import ACTOR, live_version, version
from tests.controlplane.trials.whatif.installation import keep, recorded
from tests.page_text import page_text
from tests.web.role_clients import client_of, make_person, make_pool

pytestmark = pytest.mark.django_db
FORMS = {
    "/trials?new": "New what-if requires the role operator in a pool.",
    "/trials/shadows?new": "New shadow requires the role operator in a pool.",
    "/trials/canaries?new": "New canary requires the role operator in every pool of a policy.",
    "/trials/recordings?new=window": "Uploading a trace and keeping a window require the role operator in a pool.",
    "/trials/recordings?new=upload": "Uploading a trace and keeping a window require the role operator in a pool.",
}


@pytest.fixture
def pool() -> Pool:
    pool = make_pool()
    live_version(pool.policy)
    version(pool.policy, "round_robin")
    pool.refresh_from_db()
    return pool


@pytest.fixture
def other() -> Client:
    """Return a client of a person who sees this pool but operates only another one."""
    person = make_person("pool_operator", make_pool("zoo"))
    person.role_grants.create(role="viewer", pool=None)
    return client_of(person)


def show(client: Client, path: str, status: int = 200) -> str:
    answer = client.get(path)
    assert answer.status_code == status
    return unescape(page_text(answer))


def is_rejection(page: str, needed: str) -> bool:
    return "Your role does not allow this" in page and needed in page and "<form class=" not in page


@pytest.mark.parametrize("path", FORMS)
def test_viewer_sees_the_required_role_and_never_the_form(viewer: Client, path: str) -> None:
    listed = show(viewer, path.partition("?")[0])
    assert FORMS[path] in listed
    assert "?new" not in listed
    assert is_rejection(show(viewer, path, 403), "This requires the role operator in")


@pytest.mark.parametrize("path", FORMS)
def test_operator_sees_the_action_and_the_form(pool: Pool, path: str) -> None:
    operator = client_of(make_person("pool_operator", pool))
    listed = show(operator, path.partition("?")[0])
    assert FORMS[path] not in listed
    assert f'href="{path}"' in listed
    assert '<form class="ledger-form"' in show(operator, path)


def test_operator_of_one_pool_is_offered_only_that_pool(pool: Pool, other: Client) -> None:
    assert 'name="pool" value="zoo"' in show(other, "/trials?new")
    assert "pool=chat" not in show(other, "/trials/shadows?new")
    assert ">chat<" not in show(other, "/trials/recordings?new=window")
    for path in ("/trials?new&pool=chat", "/trials/shadows?new&pool=chat"):
        assert is_rejection(show(other, path, 403), "This requires the role operator in pool chat.")
    policy = pool.policy.slug
    needed = "This requires the role operator in every pool of the policy."
    assert is_rejection(show(other, f"/trials/canaries?new&policy={policy}", 403), needed)
    assert 'name="policy" value="zoo-policy"' in show(other, "/trials/canaries?new")


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("/trials/whatif", {"pool": "chat", "draft": "2"}),
        ("/trials/shadows/start", {"pool": "chat", "draft": "2"}),
        ("/trials/canaries/start", {"policy": "chat-policy", "version": "2"}),
        ("/trials/recordings", {"pool": "chat", "kind": "window"}),
        ("/trials/recordings", {"pool": "chat", "kind": "upload", "trace": "file"}),
    ],
)
def test_form_sent_without_the_role_is_rejected_without_being_shown(
    pool: Pool, other: Client, path: str, form: dict[str, str]
) -> None:
    before = AuditEvent.objects.count()
    sent = {**form, "trace": SimpleUploadedFile("t.jsonl", b"{}")} if "trace" in form else form
    answer = other.post(path, sent)
    assert answer.status_code == 403
    assert is_rejection(page_text(answer), "This requires the role operator in")
    assert AuditEvent.objects.count() == before


def test_trial_pages_state_the_required_role_of_their_actions(pool: Pool, viewer: Client) -> None:
    canary = start_canary(pool.policy.versions.get(number=2), steps=(0.1,), actor=ACTOR)
    started = start_shadow(pool, pool.policy.versions.get(number=2), actor=ACTOR)
    page = show(viewer, f"/trials/canaries/{canary.key}")
    assert "Stepping, promoting and aborting require the role operator in every pool of the policy." in page
    page = show(viewer, f"/trials/shadows/{started.pk}")
    assert "Starting or stopping shadows requires the role operator in pool chat." in page


def test_recording_states_the_required_role_of_its_actions(pool: Pool, viewer: Client) -> None:
    kept: Recording = keep(pool, recorded())
    address = f"/trials/recordings?recording={kept.pk}"
    page = show(viewer, address)
    assert "Running a what-if and deleting require the role operator in pool chat." in page
    assert "What-if with this" not in page
    assert is_rejection(show(viewer, f"{address}&delete", 403), "This requires the role operator in pool chat.")


def test_policy_dialogs_are_hidden_from_people_without_the_role(pool: Pool, viewer: Client) -> None:
    address = f"/policies/{pool.policy.slug}"
    for asked in ("?draft=2&ask=publish", "?ask=roll-back&version=1"):
        needed = "This requires the role operator in every pool of the policy."
        assert is_rejection(show(viewer, address + asked, 403), needed)
    half = make_person("pool_operator", pool)
    Pool.objects.create(slug="more", name="more", region=pool.region, served_model="m", policy=pool.policy)
    page = show(client_of(half), address)
    assert "Publishing and rolling back require the role operator in every pool of the policy." in page
    assert 'id="publish"' not in page


def test_observing_pool_states_that_routing_requires_an_admin(pool: Pool) -> None:
    change_pool(pool, {"mode": "observe"}, actor=ACTOR)
    observe_pools()
    observed = Shadow.objects.get()
    operator, address = client_of(make_person("operator")), f"/trials/shadows/{observed.pk}"
    assert "Starting to route requires the role admin in all pools." in show(operator, address)
    assert is_rejection(show(operator, f"{address}?ask", 403), "requires the role admin in all pools.")
