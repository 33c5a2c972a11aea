"""Release timeline, approval, and scheduled publish on the policy page."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from django.test import Client
from django.utils import timezone

from controlplane.fleet.models.pool import Pool
from controlplane.platform.actor import CONSOLE, person
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.policies.document.text import completed
from controlplane.policies.models.policy import Policy
from controlplane.policies.models.policy_approval import PolicyApproval
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.policies.models.scheduled_publish import ScheduledPublish
from controlplane.policies.publish import change_policy, draft
from controlplane.policies.scheduled_publishes import scheduled_publish
from controlplane.trials.models.whatif import WhatIf
from tests.controlplane.policies.test_release_timeline import result
from tests.page_text import page_text
from tests.web.policies.policy_scene import ACTOR, SECOND, URL, live_number, publish_form
from tests.web.role_clients import client_of, make_person
from web.policies.schedule_words import read_moment, suggested

pytestmark = pytest.mark.django_db


@pytest.fixture
def author(pool: Pool) -> Client:
    return client_of(make_person("pool_operator", pool))


@pytest.fixture
def second(pool: Pool) -> Client:
    return client_of(make_person("operator", pool))


@pytest.fixture
def mine(policy: Policy, author: Client) -> PolicyVersion:
    """Return version 3, written by the operator of the pool."""
    user = author.get("/access/you").wsgi_request.user
    return draft(policy, {**completed(SECOND), "max_wait_s": 30.0}, actor=person(user, via=CONSOLE), message="mine")


@pytest.fixture
def asked(policy: Policy) -> None:
    """Make the policy require approval."""
    change_policy(policy, {"needs_approval": True}, actor=ACTOR)


def page(client: Client, query: str = "") -> str:
    return page_text(client.get(URL + query))


def start_of(text: str, link_id: str) -> tuple[str, str]:
    """Return target and text of the only link with that id."""
    (link,) = re.findall(f'id="{link_id}" href="([^"]+)"[^>]*>([^<]+)</a>', text)
    return link


def in_hours(hours: float) -> str:
    return f"{timezone.now() + timedelta(hours=hours):%Y-%m-%dT%H:%M}"


def later(version: PolicyVersion, at: str) -> dict[str, Any]:
    return {**publish_form(version), "when": "later", "at": at}


def test_draft_shows_the_steps_before_it_is_live(mine: PolicyVersion, pool: Pool, author: Client) -> None:
    text = page(author, "?draft=3")
    assert 'data-step="what_if"' in text
    assert start_of(text, "whatif-link") == ("/trials?new&amp;pool=chat&amp;draft=3", "Run a what-if")
    assert start_of(text, "shadow-link") == ("/trials/shadows?new&amp;pool=chat&amp;draft=3", "Start a shadow")
    assert start_of(text, "canary-link")[1] == "Start a canary"
    assert 'data-step="approved"' not in text
    base = mine.policy.versions.get(number=2)
    answer = msgspec.to_builtins(result())
    made = WhatIf.objects.create(pool=pool, recording_name="r", draft=mine, base=base, conditions={}, result=answer)
    text = page(author, "?draft=3")
    assert f'<a href="/trials/whatif/{made.pk}">What-if</a>' in text
    assert "Better on the on-time share than v2" in text
    assert start_of(text, "whatif-link") == ("/trials?new&amp;pool=chat&amp;draft=3", "Run again")


def test_formerly_live_version_shows_its_release_history(policy: Policy, author: Client) -> None:
    text = page(author, "?draft=1")
    assert 'aria-label="Release timeline of v1"' in text
    assert "<b>Replaced</b> by v2 by test" in text
    assert 'data-step="live"' in page(author)


def test_author_sees_who_may_approve_and_cannot_approve(
    policy: Policy, mine: PolicyVersion, asked: None, author: Client
) -> None:
    text = page(author, "?draft=3&ask=publish")
    assert "other than pool_operator, who wrote it" in text
    assert 'id="approve"' not in text
    rejected = author.post(f"{URL}/publish", publish_form(mine))
    assert rejected.status_code == 409
    assert "needs the approval of a second person" in page_text(rejected)
    rejected = author.post(f"{URL}/approve", {"version": 3})
    assert rejected.status_code == 409
    assert "a second person must approve it" in page_text(rejected)
    assert (live_number(policy), PolicyApproval.objects.count()) == (2, 0)


def test_second_person_approves_and_the_author_publishes(
    policy: Policy, mine: PolicyVersion, asked: None, author: Client, second: Client
) -> None:
    assert "needs approval</a>" in page(second, "?draft=3")
    assert "Approve v3" in page(second, "?draft=3&ask=publish")
    assert second.post(f"{URL}/approve", {"version": 3})["Location"] == f"{URL}?draft=3&ask=publish"
    assert "Withdraw your approval" in page(second, "?draft=3&ask=publish")
    assert "Approved by operator." in page(author, "?draft=3&ask=publish")
    assert author.post(f"{URL}/publish", publish_form(mine)).status_code == 302
    assert live_number(policy) == 3
    assert "<b>Approved</b> by operator" in page(author)


def test_approval_can_be_withdrawn_by_its_author(mine: PolicyVersion, asked: None, second: Client) -> None:
    second.post(f"{URL}/approve", {"version": 3})
    assert second.post(f"{URL}/withdraw-approval", {"version": 3}).status_code == 302
    assert not PolicyApproval.objects.exists()
    assert second.post(f"{URL}/withdraw-approval", {"version": 3}).status_code == 409


def test_rollback_states_that_it_needs_no_approval(policy: Policy, asked: None, author: Client) -> None:
    assert "No approval needed." in page(author, "?ask=roll-back&version=1")
    assert author.post(f"{URL}/roll-back", {"version": 1, "instead_of": 2, "why": "late"}).status_code == 302
    assert live_number(policy) == 3


def test_operators_enable_the_approval_requirement_and_admins_disable_it(
    policy: Policy, pool: Pool, second: Client
) -> None:
    def rule(client: Client, wanted: str) -> int:
        revision = Policy.objects.get(pk=policy.pk).revision
        return client.post(f"{URL}/approval-rule", {"needs_approval": wanted, "revision": revision}).status_code

    assert rule(second, "on") == 302
    assert "Remove requirement" not in page(second)
    assert rule(second, "off") == 403
    assert rule(client_of(make_person("admin", pool)), "off") == 302
    stale = second.post(f"{URL}/approval-rule", {"needs_approval": "on", "revision": "1"})
    assert stale.status_code == 412
    assert not Policy.objects.get(pk=policy.pk).needs_approval
    assert rule(second, "perhaps") == 404


def test_publish_time_is_chosen_shown_and_kept(policy: Policy, mine: PolicyVersion, author: Client) -> None:
    at = in_hours(5)
    assert author.post(f"{URL}/publish", later(mine, at))["Location"] == f"{URL}?draft=3"
    assert live_number(policy) == 2
    text = page(author)
    assert f"{at.replace('T', ' ')} UTC</time>" in text
    assert "in 5\u202fh" in text
    assert "scheduled by pool_operator." in text
    ScheduledPublish.objects.update(at=timezone.now() - timedelta(seconds=1))
    scheduled_publish()
    assert live_number(policy) == 3
    assert 'id="schedule"' not in page(author)


def test_scheduled_publish_is_cancelled_on_the_page(policy: Policy, mine: PolicyVersion, author: Client) -> None:
    author.post(f"{URL}/publish", later(mine, in_hours(5)))
    assert author.post(f"{URL}/cancel-publish").status_code == 302
    assert ScheduledPublish.objects.get().state == "cancelled"
    assert author.post(f"{URL}/cancel-publish").status_code == 409
    assert AuditEvent.objects.filter(verb="policy.schedule_cancel").count() == 1


def test_page_shows_why_a_scheduled_publish_failed(policy: Policy, mine: PolicyVersion, author: Client) -> None:
    author.post(f"{URL}/publish", later(mine, in_hours(5)))
    change_policy(policy, {"needs_approval": True}, actor=ACTOR)
    ScheduledPublish.objects.update(at=timezone.now() - timedelta(seconds=1))
    scheduled_publish()
    text = page(author)
    assert "did not go live at" in text
    assert "needs the approval of a second person" in text


@pytest.mark.parametrize("at", ["", "tonight", "2020-01-01T00:00", "9999-12-31T23:59"])
def test_invalid_publish_time_shows_the_form_again(
    policy: Policy, mine: PolicyVersion, author: Client, at: str
) -> None:
    answer = author.post(f"{URL}/publish", later(mine, at))
    assert answer.status_code == 422
    assert 'aria-invalid="true"' in page_text(answer)
    assert not ScheduledPublish.objects.exists()


def test_second_schedule_and_a_wrong_name_are_rejected(mine: PolicyVersion, author: Client) -> None:
    wrong = {**later(mine, in_hours(5)), "typed": "prod"}
    assert author.post(f"{URL}/publish", wrong).status_code == 422
    assert author.post(f"{URL}/publish", later(mine, in_hours(5))).status_code == 302
    again = author.post(f"{URL}/publish", later(mine, in_hours(6)))
    assert again.status_code == 409
    assert "cancel that first" in page_text(again)


def test_times_are_parsed_as_utc() -> None:
    read = read_moment("2027-01-31T09:00")
    assert read is not None
    assert read.isoformat() == "2027-01-31T09:00:00+00:00"
    assert read_moment("2027-01-31T09:00+02:00").isoformat() == "2027-01-31T07:00:00+00:00"
    assert suggested(read) == "2027-01-31T10:00"


def test_author_deletes_a_draft_through_a_dialog(mine: PolicyVersion, author: Client) -> None:
    assert "Delete draft v3?" in page(author, "?draft=3&ask=delete")
    answer = author.post(f"{URL}/delete-draft", {"version": "3", "why": "dead end"})
    assert (answer.status_code, answer["Location"]) == (303, f"{URL}?deleted=3")
    assert "Draft v3 was deleted" in page(author, "?deleted=3")
    assert AuditEvent.objects.get(verb="policy.delete_draft").why == "dead end"


def test_live_version_has_no_dialog_and_is_not_deleted(policy: Policy, second: Client) -> None:
    assert "Delete draft" not in page(second, "?draft=2&ask=delete")
    assert second.post(f"{URL}/delete-draft", {"version": "2"}).status_code == 409


def test_approval_rule_asks_why(policy: Policy, second: Client) -> None:
    assert "Require approval for chat-policy?" in page(second, "?ask=approval")
    rule = {"needs_approval": "on", "revision": str(policy.revision), "why": "audit finding"}
    assert second.post(f"{URL}/approval-rule", rule).status_code == 302
    assert AuditEvent.objects.get(verb="policy.change").why == "audit finding"


def test_publish_after_a_failed_trial_lists_it_and_requires_a_reason(
    policy: Policy, mine: PolicyVersion, second: Client
) -> None:
    worse = msgspec.to_builtins(result())
    worse["differences"] = [
        {**item, "change": {**item["change"], **dict.fromkeys(item["change"], -0.05)}, "better": 0, "worse": 5}
        for item in worse["differences"]
    ]
    base = policy.versions.get(number=2)
    WhatIf.objects.create(
        pool=policy.pools.get(), recording_name="r", draft=mine, base=base, conditions={}, result=worse
    )
    asked = page(second, "?draft=3&ask=publish")
    assert 'id="question-trials"' in asked
    assert "than v2" in asked
    assert re.search(r'class="button ledger-danger"\s+type="submit" id="answer"', asked)
    answer = second.post(f"{URL}/publish", publish_form(mine))
    assert answer.status_code == 422
    assert "Say why it goes live nevertheless" in page_text(answer)
    assert second.post(f"{URL}/publish", {**publish_form(mine), "why": "the flood ends"}).status_code == 302
    event = AuditEvent.objects.filter(verb="policy.publish").latest("pk")
    assert event.why == "the flood ends"
