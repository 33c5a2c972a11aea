"""Publish, rollback, and publish conflicts: nothing is overwritten silently."""

from __future__ import annotations

import random
import re

import pytest

from controlplane.fleet.models.pool import Pool
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.policies.document.text import completed
from controlplane.policies.models.policy import Policy
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.policies.publish import draft
from controlplane.trials.canary.lifecycle import start_canary
from tests.page_text import page_text
from tests.web.policies.policy_scene import (
    ACTOR,
    SECOND,
    URL,
    browser_of,
    live_number,
    publish_form,
    publish_meanwhile,
    sample_of,
)
from tests.web.role_clients import make_pool
from web.live.feed import FleetFeed

pytestmark = pytest.mark.django_db


@pytest.fixture
def mine(policy: Policy) -> PolicyVersion:
    """Return a draft based on version 2, with two changes."""
    document = {**completed(SECOND), "max_wait_s": 30.0, "queue_limit": 500}
    return draft(policy, document, actor=ACTOR, message="mine")


def test_publish_dialog_states_the_effects_in_numbers(
    policy: Policy, pool: Pool, mine: PolicyVersion, feed: FleetFeed
) -> None:
    feed.take(sample_of(pool))
    text = page_text(browser_of("operator", pool).get(f"{URL}?draft=3&ask=publish"))
    for words in (
        "Publish v3 to chat?",
        "2 engines, 9.4 requests/s; takes effect in about 2",
        "You can roll back to v2",
        "Type chat to publish v3 to 2 engines",
        "Max wait",
        "<b>30\u202fs</b>",
        "mine",
    ):
        assert words in text


def test_publish_dialog_names_the_canary_that_ends(policy: Policy, pool: Pool, mine: PolicyVersion) -> None:
    tried = draft(policy, completed({**SECOND, "placement": {"name": "round_robin"}}), actor=ACTOR, message="tried")
    start_canary(tried, steps=(0.1,), actor=ACTOR)
    text = page_text(browser_of("operator", pool).get(f"{URL}?draft=3&ask=publish"))
    assert "The running canary of v4 ends." in text


def test_wrong_typed_name_changes_nothing(policy: Policy, pool: Pool, mine: PolicyVersion) -> None:
    client = browser_of("operator", pool)
    for word in ("", "caht", "Chat"):
        answer = client.post(f"{URL}/publish", publish_form(mine, word=word))
        assert answer.status_code == 422
        text = page_text(answer)
        assert "Type chat to publish:" in text
        assert 'aria-describedby="typed-error" aria-invalid="true"' in text
    assert live_number(policy) == 2


def test_policy_with_a_production_pool_is_confirmed_by_the_name_of_the_policy(
    policy: Policy, pool: Pool, mine: PolicyVersion
) -> None:
    client = browser_of("superuser", pool)
    other = make_pool("other")
    Pool.objects.filter(pk=other.pk).update(policy=policy)
    assert "Type chat-policy to publish v3 to 2 engines" in page_text(client.get(f"{URL}?draft=3&ask=publish"))
    Pool.objects.filter(pk=pool.pk).update(production=False)
    assert 'id="typed"' in page_text(client.get(f"{URL}?draft=3&ask=publish"))
    Pool.objects.filter(pk=other.pk).update(production=False)
    assert 'id="typed"' not in page_text(client.get(f"{URL}?draft=3&ask=publish"))
    assert client.post(f"{URL}/publish", publish_form(mine, word="")).status_code == 302


def test_publish_is_audited_with_its_reason(policy: Policy, pool: Pool, mine: PolicyVersion) -> None:
    answer = browser_of("operator", pool).post(f"{URL}/publish", publish_form(mine))
    assert answer["Location"] == f"{URL}?published=3"
    assert live_number(policy) == 3
    event = AuditEvent.objects.get(verb="policy.publish", actor_name="operator")
    assert (event.why, event.via, event.pool_slug) == ("mine", "console", "chat")


def test_double_click_publishes_once(policy: Policy, pool: Pool, mine: PolicyVersion) -> None:
    client = browser_of("operator", pool)
    first, second = (client.post(f"{URL}/publish", publish_form(mine)) for _ in range(2))
    assert first["Location"] == second["Location"] == f"{URL}?published=3"
    assert live_number(policy) == 3
    assert AuditEvent.objects.filter(verb="policy.publish", actor_name="operator").count() == 1


def test_slower_publisher_gets_412_with_a_three_way_diff(policy: Policy, pool: Pool, mine: PolicyVersion) -> None:
    publish_meanwhile(policy, {**completed(SECOND), "max_wait_s": 20.0, "prefill_window_tokens": 4096})
    client = browser_of("operator", pool)
    answer = client.post(f"{URL}/publish", publish_form(mine))
    assert answer.status_code == 412
    text = page_text(answer)
    assert "Headway published v4 while you edited" in text
    assert "1 of your 2 changes touches the same setting" in text
    assert re.findall(r'data-side="(\w+)"', text) == ["theirs", "mine", "conflict"]
    assert live_number(policy) == 4


def test_outdated_draft_leads_to_the_merge_instead_of_the_publish_dialog(
    policy: Policy, pool: Pool, mine: PolicyVersion
) -> None:
    publish_meanwhile(policy, {**completed(SECOND), "prefill_window_tokens": 4096})
    client = browser_of("operator", pool)
    assert client.get(f"{URL}?draft=3&ask=publish")["Location"] == f"{URL}/merge?draft=3"
    answer = client.post(f"{URL}/publish", {**publish_form(mine), "instead_of": "4"})
    assert answer.status_code == 412
    assert live_number(policy) == 4


def merge_form(mine: PolicyVersion, theirs: int, **choices: str) -> dict[str, str]:
    posted = {"draft": str(mine.number), "theirs": str(theirs)}
    return {**posted, **{f"choice.{path}": side for path, side in choices.items()}}


def test_only_conflicts_require_a_choice(policy: Policy, pool: Pool, mine: PolicyVersion) -> None:
    publish_meanwhile(policy, {**completed(SECOND), "max_wait_s": 20.0, "prefill_window_tokens": 4096})
    client = browser_of("operator", pool)
    answer = client.post(f"{URL}/merge", merge_form(mine, 4))
    assert answer.status_code == 422
    assert "1 setting still needs a choice" in page_text(answer)
    assert PolicyVersion.objects.count() == 4
    answer = client.post(f"{URL}/merge", merge_form(mine, 4, max_wait_s="mine"))
    assert answer["Location"] == f"{URL}?draft=5"
    both = PolicyVersion.objects.get(number=5)
    assert (both.based_on, both.message) == (4, "mine")
    document = both.routing_document
    assert (document["max_wait_s"], document["queue_limit"], document["prefill_window_tokens"]) == (30.0, 500, 4096)
    assert client.post(f"{URL}/publish", publish_form(both)).status_code == 302
    assert live_number(policy) == 5


def test_incompatible_rules_are_reported_and_nothing_is_stored(policy: Policy, pool: Pool, mine: PolicyVersion) -> None:
    pulled = {**completed(SECOND), "placement": {"name": "central"}, "order": {"name": "late_binding"}}
    publish_meanwhile(policy, pulled)
    answer = browser_of("operator", pool).post(
        f"{URL}/merge", merge_form(mine, 4, placement="mine", order="theirs", max_wait_s="mine", queue_limit="mine")
    )
    assert answer.status_code == 422
    text = page_text(answer)
    assert "chosen settings conflict" in text
    assert "<code>placement.name</code>" in text
    assert PolicyVersion.objects.count() == 4


def test_automatic_merge_choice_can_be_overridden(policy: Policy, pool: Pool, mine: PolicyVersion) -> None:
    publish_meanwhile(policy, {**completed(SECOND), "prefill_window_tokens": 4096})
    client = browser_of("operator", pool)
    client.post(f"{URL}/merge", merge_form(mine, 4, prefill_window_tokens="mine", queue_limit="theirs"))
    document = PolicyVersion.objects.get(number=5).routing_document
    assert (document["prefill_window_tokens"], document["queue_limit"], document["max_wait_s"]) == (8192, 2000, 30.0)


def test_further_publish_reopens_the_merge(policy: Policy, pool: Pool, mine: PolicyVersion) -> None:
    publish_meanwhile(policy, {**completed(SECOND), "max_wait_s": 20.0})
    publish_meanwhile(policy, {**completed(SECOND), "max_wait_s": 25.0})
    answer = browser_of("operator", pool).post(f"{URL}/merge", merge_form(mine, 4, max_wait_s="mine"))
    assert answer.status_code == 412
    assert "Another version went live while this page was open" in page_text(answer)
    assert PolicyVersion.objects.count() == 5


def test_draft_based_on_the_live_version_needs_no_merge(policy: Policy, pool: Pool, mine: PolicyVersion) -> None:
    client = browser_of("operator", pool)
    assert client.get(f"{URL}/merge?draft=3")["Location"] == f"{URL}?draft=3"
    assert client.get(f"{URL}/merge?draft=99").status_code == 404


def test_rollback_has_one_dialog_and_publishes_a_copy(policy: Policy, pool: Pool) -> None:
    client = browser_of("operator", pool)
    text = page_text(client.get(f"{URL}?ask=roll-back&version=1"))
    assert "Roll chat back to v1?" in text
    assert "A copy of v1 becomes the newest version; v2 stays in the list." in text
    assert 'id="typed"' not in text
    rejected = client.post(f"{URL}/roll-back", {"version": 1, "instead_of": 2, "why": " "})
    assert rejected.status_code == 422
    assert "Say why the version goes live again" in page_text(rejected)
    assert live_number(policy) == 2
    asked = {"version": 1, "instead_of": 2, "why": "late since v2"}
    answer = client.post(f"{URL}/roll-back", asked)
    assert answer["Location"] == f"{URL}?published=3"
    assert AuditEvent.objects.get(verb="policy.roll_back").why == "late since v2"
    copy = PolicyVersion.objects.get(number=3)
    assert copy.routing_document == PolicyVersion.objects.get(number=1).routing_document
    assert (
        client.post(f"{URL}/roll-back", {"version": 1, "instead_of": 2, "why": "late"})["Location"]
        == answer["Location"]
    )
    assert live_number(policy) == 3


def test_rollback_version_names_the_version_it_copies(policy: Policy, pool: Pool) -> None:
    client = browser_of("operator", pool)
    client.post(f"{URL}/roll-back", {"version": 1, "instead_of": 2, "why": "late"})
    client.post(f"{URL}/roll-back", {"version": 2, "instead_of": 3, "why": "late"})
    for number, copied in (("", 2), ("?draft=3", 1)):
        page = " ".join(re.sub("<[^>]+>", " ", page_text(client.get(URL + number))).split())
        assert f"Copies v{copied} by operator" in page
        assert "Rolled back by operator" in page
        assert "by roll back" not in page
        assert not re.search(r"Drafted from v[23]", page)
        assert "Copies v2. Rolled back by operator" in page
        assert "Copies v1. Rolled back by operator" in page


def test_outdated_rollback_names_the_other_publisher_and_changes_nothing(policy: Policy, pool: Pool) -> None:
    publish_meanwhile(policy, {"ttft_slo_s": 1.0})
    answer = browser_of("operator", pool).post(f"{URL}/roll-back", {"version": 1, "instead_of": 2, "why": "late"})
    assert answer.status_code == 412
    text = page_text(answer)
    assert "Headway published v3 while this dialog was open. Nothing was rolled back" in text
    assert "Roll chat back to v1?" in text
    assert live_number(policy) == 3


@pytest.mark.parametrize("posted", [{}, {"version": "x"}, {"version": "99"}, {"version": "-1"}])
def test_dialog_about_an_unknown_version_is_not_found(policy: Policy, pool: Pool, posted: dict[str, str]) -> None:
    client = browser_of("operator", pool)
    assert client.post(f"{URL}/publish", posted).status_code == 404
    assert client.post(f"{URL}/roll-back", posted).status_code == 404


def test_stored_document_that_became_invalid_is_not_published(policy: Policy, pool: Pool) -> None:
    version = PolicyVersion.objects.create(policy=policy, number=3, routing_document={"ttft_slo_s": -1}, based_on=2)
    answer = browser_of("operator", pool).post(f"{URL}/publish", publish_form(version))
    assert answer.status_code == 422
    assert "-1 is not above 0 s" in page_text(answer)
    assert live_number(policy) == 2


@pytest.mark.parametrize("seed", range(5))
def test_random_interleavings_of_editors_lose_no_change(policy: Policy, pool: Pool, seed: int) -> None:
    """Each editor increments its own setting in random turns, and merges after a conflict."""
    rng = random.Random(seed)
    settings = ("queue_limit", "prefill_window_tokens")
    client = browser_of("operator", pool)
    opened: dict[str, PolicyVersion | None] = dict.fromkeys(settings)
    done = dict.fromkeys(settings, 0)
    before = completed(SECOND)
    for _ in range(40):
        name = rng.choice(settings)
        version = opened[name]
        if version is None:
            live = policy.versions.get(number=live_number(policy))
            document = {**live.routing_document, name: live.routing_document[name] + 1}
            opened[name] = draft(policy, document, actor=ACTOR, message=name)
            continue
        answer = client.post(f"{URL}/publish", publish_form(version))
        if answer.status_code == 412:
            merged = client.post(f"{URL}/merge", merge_form(version, live_number(policy) or 0))
            opened[name] = policy.versions.get(number=int(merged["Location"].rpartition("=")[2]))
        else:
            assert answer.status_code == 302
            opened[name] = None
            done[name] += 1
    live = policy.versions.get(number=live_number(policy)).routing_document
    assert {name: live[name] - before[name] for name in settings} == done
