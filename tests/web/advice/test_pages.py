"""The pages of advice: the inbox, a proposal with its actions, and the record."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from controlplane.advice.models.advice_proposal import AdvicePrediction, AdviceProposal, ProposalState
from controlplane.advice.proposals import promoted
from controlplane.fleet.models.pool import Pool
from controlplane.platform.models.job_run import JobRun
from controlplane.trials.models.canary import Canary
from controlplane.trials.models.shadow import Shadow
from gateway.bus.bus import Bus
from planning.adviser.autopilot import HoldbackCounts
from tests.controlplane.advice.scene import ACTOR, BEGIN, advice_with, live_pool, proposed, searched_for
from tests.controlplane.conftest import bus
from tests.page_text import page_text

__all__ = ["bus"]
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("feed")]


@pytest.fixture
def made(pool: Pool, bus: Bus) -> AdviceProposal:
    return proposed(live_pool(pool))


def page(made: AdviceProposal) -> str:
    return f"/advice/proposals/{made.pk}"


def test_the_inbox_counts_and_lists_what_waits(operator: Client, made: AdviceProposal) -> None:
    text = page_text(operator.get("/advice"))
    assert "1 proposal waiting" in text
    assert "least_cost" in text
    assert re.search(r'title="Waiting proposals"\s*>1</b>', text)
    assert "Search now" in text
    assert "Stop all autopilots" not in text
    Pool.objects.update(advice="canary")
    assert "Stop all autopilots" in page_text(operator.get("/advice"))


def test_an_empty_inbox_states_when_the_next_search_comes(operator: Client, pool: Pool, bus: Bus) -> None:
    live = live_pool(pool)
    text = page_text(operator.get("/advice"))
    assert "after 60\u202fmin more of recorded traffic" in text
    assert "at least 60\u202fmin of recorded traffic, and at most 10\u202fmin of CPU time" in text
    assert "Example, not from your traffic." in text
    record = page_text(operator.get("/advice/record"))
    assert f"Next: pool {live.slug}, in" in record
    assert "Example, not from your traffic." in record
    Pool.objects.update(advice="off")
    assert "never by itself: the adviser is off" in page_text(operator.get("/advice"))


def test_fleet_and_the_policys_page_say_that_a_proposal_waits(operator: Client, made: AdviceProposal) -> None:
    assert "1 proposal of the" in page_text(operator.get("/"))
    text = page_text(operator.get(f"/policies/{made.pool.policy.slug}"))
    assert f"Open proposal {made.pk}" in text


def test_a_proposal_shows_ranges_windows_groups_and_doubts(operator: Client, made: AdviceProposal) -> None:
    text = page_text(operator.get(page(made)))
    assert "advice-better" in text
    assert "busiest" in text
    assert "tenant acme" in text
    assert "What would change my mind" in text
    assert "Cost of being wrong" in text
    assert "placement.name" in text
    assert "12" in text
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=", text)


def test_an_abstention_says_why(operator: Client, pool: Pool, bus: Bus) -> None:
    outcome = searched_for(live_pool(pool), advice_with(None))
    text = page_text(operator.get(f"/advice/proposals/{outcome['proposal']}"))
    assert "No proposal" in text
    assert "no objective improves by a practical size" in text
    assert "/reject" not in text


def test_its_actions_start_trials_and_reject(operator: Client, made: AdviceProposal) -> None:
    assert operator.post(f"{page(made)}/shadow").status_code == 303
    assert Shadow.objects.get().draft == made.version
    made.refresh_from_db()
    stale = operator.post(f"{page(made)}/canary", {"revision": made.revision - 1})
    assert stale.status_code == 409
    assert operator.post(f"{page(made)}/canary", {"revision": made.revision}).status_code == 303
    assert Canary.objects.get().version == made.version
    assert "Abort the canary" in page_text(operator.post(f"{page(made)}/reject", {"why": "no"}))
    assert operator.post(f"{page(made)}/nothing").status_code == 422


def test_a_rejection_needs_a_reason(operator: Client, made: AdviceProposal) -> None:
    assert operator.post(f"{page(made)}/reject").status_code == 422
    assert operator.post(f"{page(made)}/reject", {"why": "A rare night."}).status_code == 303
    made.refresh_from_db()
    assert made.state == ProposalState.REJECTED
    assert "A rare night." in page_text(operator.get("/advice"))


def test_viewers_see_everything_and_change_nothing(viewer: Client, made: AdviceProposal) -> None:
    assert "requires the role operator" in page_text(viewer.get(page(made)))
    for address in (f"{page(made)}/shadow", f"{page(made)}/canary", f"{page(made)}/reject", "/advice/stop"):
        assert viewer.post(address, {"why": "because"}).status_code == 403
    assert viewer.post("/advice/search", {"pool": made.pool.slug}).status_code == 403
    assert not Shadow.objects.exists()


def test_a_search_starts_from_the_page_and_shows_its_progress(operator: Client, pool: Pool, bus: Bus) -> None:
    live_pool(pool)
    assert operator.post("/advice/search", {"pool": pool.slug}).status_code == 303
    JobRun.objects.update(progress={"done": 42, "of": 100})
    assert "42" in page_text(operator.get("/advice?fragment=1"))
    assert operator.post("/advice/search", {"pool": pool.slug}).status_code == 409


def test_the_red_button(operator: Client, made: AdviceProposal) -> None:
    Pool.objects.update(advice="promote")
    assert operator.post("/advice/stop").status_code == 303
    assert set(Pool.objects.values_list("advice", flat=True)) == {"propose"}


def test_the_record_draws_measured_against_predicted(operator: Client, made: AdviceProposal) -> None:
    assert "Nothing was measured yet" in page_text(operator.get("/advice/record"))
    promoted(made, timezone.now() - timedelta(hours=2), HoldbackCounts(), actor=ACTOR, reason="")
    AdvicePrediction.objects.filter(objective="on_time").update(measured=0.11, against_holdback=0.1)
    AdvicePrediction.objects.filter(objective="ttft_mean_s").update(measured=0.9)
    text = page_text(operator.get("/advice/record"))
    assert "1 of" in text
    assert "advice-outside" in text
    assert "+11.0 pt" in text
    assert "+90.0 %" in text
    assert page_text(operator.get(f"/advice/record?pool={made.pool.slug}")).count("advice-outside") == 1
    assert "outside the" in page_text(operator.get(page(made)))


@pytest.mark.parametrize(("address", "queries"), [("/advice", 10), ("/advice/record", 10)])
def test_pages_take_few_queries(
    operator: Client,
    made: AdviceProposal,
    address: str,
    queries: int,
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    for number in range(5):
        searched_for(made.pool, end=BEGIN + 9000 * (number + 2))
    with django_assert_num_queries(queries):
        assert operator.get(address).status_code == 200
