"""The list of policies: one row per visible pool, its results since the publish, and drafts."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from controlplane.fleet.models.pool import Pool
from controlplane.policies.models.policy import Policy
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.policies.publish import draft
from tests.page_text import page_text
from tests.web.policies.policy_scene import ACTOR, browser_of, sample_of
from tests.web.role_clients import make_pool
from web.live.feed import FleetFeed

pytestmark = pytest.mark.django_db
QUERIES = 11
"""Session, person, roles, visible pools, policies with their live versions, pools, drafts, history, changes."""


@pytest.mark.parametrize("policies", [1, 12])
def test_page_takes_the_same_queries_for_one_policy_and_for_many(
    policy: Policy, pool: Pool, policies: int, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(1, policies):
        other = make_pool(f"pool-{number}")
        draft(other.policy, {}, actor=ACTOR)
    client = browser_of("viewer", pool)
    with django_assert_num_queries(QUERIES):
        assert client.get("/policies").status_code == 200


def test_row_shows_version_author_age_rule_and_share(policy: Policy, pool: Pool, feed: FleetFeed) -> None:
    feed.take(sample_of(pool))
    PolicyVersion.objects.filter(number=2).update(published_at=timezone.now() - timedelta(minutes=4))
    text = page_text(browser_of("viewer", pool).get("/policies"))
    for words in ("<b>v2</b>", "by Headway", "4\u202fmin ago", "second", "least_cost", "fifo", "98.4\u202f%", "9.4"):
        assert words in text
    assert "last 60\u202fs" in text
    assert "1 policy for 1 pool, no drafts." in text


def test_recent_changes_are_listed_and_the_share_since_live_is_unknown_at_first(
    policy: Policy, pool: Pool, feed: FleetFeed
) -> None:
    feed.take(sample_of(pool))
    text = page_text(browser_of("viewer", pool).get("/policies"))
    assert re.search(r'<td class="number">—<span\s+class="sub">no history stored yet</span></td>', text)
    assert 'published <span class="muted">policy</span>' in text.partition('id="changes-title"')[2]


def test_gateway_with_another_version_is_shown(policy: Policy, pool: Pool, feed: FleetFeed) -> None:
    feed.take(sample_of(pool, policy_version=1))
    assert "the gateway still runs v1" in page_text(browser_of("viewer", pool).get("/policies"))


def test_share_below_its_target_is_marked_by_icon_and_text(policy: Policy, pool: Pool, feed: FleetFeed) -> None:
    feed.take(sample_of(pool, on_time_share=0.62))
    text = page_text(browser_of("viewer", pool).get("/policies"))
    assert "below 90 %" in text
    assert "Pool chat is 62.0\u202f% on time with v2" in text


def test_shares_without_a_sample_are_unknown_not_zero(policy: Policy, pool: Pool) -> None:
    text = page_text(browser_of("viewer", pool).get("/policies"))
    assert "has not published a fleet sample" in text
    assert "not reported yet" in text
    assert "0.0" not in text


def test_publishable_drafts_are_linked(policy: Policy, pool: Pool) -> None:
    for _ in range(5):
        draft(policy, {"ttft_slo_s": 1.0}, actor=ACTOR)
    text = page_text(browser_of("viewer", pool).get("/policies"))
    assert "/policies/chat-policy?draft=7" in text
    assert "and 2 more" in text
    assert "5 drafts not live" in text


@pytest.mark.parametrize(
    ("role", "seen"), [("nobody", False), ("pool_viewer", True), ("viewer", True), ("superuser", True)]
)
def test_people_see_policies_of_their_pools(policy: Policy, pool: Pool, role: str, seen: bool) -> None:
    other = make_pool("secret")
    text = page_text(browser_of(role, pool).get("/policies"))
    assert ("chat-policy" in text) is seen
    assert (other.policy.slug in text) is (role in ("viewer", "superuser"))


def test_markup_in_names_is_escaped(policy: Policy, pool: Pool) -> None:
    Pool.objects.update(name="<script>alert(1)</script>")
    Policy.objects.update(name='"><img src=x onerror=alert(1)>')
    client = browser_of("operator", pool)
    for page in ("/policies", "/policies/chat-policy", "/policies/chat-policy?ask=roll-back&version=1"):
        text = page_text(client.get(page))
        assert "<script>alert" not in text
        assert "<img" not in text


def test_unreadable_live_version_is_named(policy: Policy, pool: Pool) -> None:
    newer = PolicyVersion.objects.create(policy=policy, number=99, routing_document={"schema_version": 3})
    Policy.objects.filter(pk=policy.pk).update(live_version=newer)
    page = browser_of("viewer", pool).get("/policies")
    assert page.status_code == 200
    assert "This release cannot read it" in page_text(page)
    assert "The pool keeps the last policy" in page_text(page)
