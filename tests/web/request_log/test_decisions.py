"""Decisions as pages: listed, updated live, and explained, for people who may see the pool."""

from __future__ import annotations

import json
import re
import time

import msgspec
import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from controlplane.fleet.models.pool import Pool
from controlplane.platform.bus import get_bus
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.request_log.models.decision_index import DecisionIndex
from controlplane.request_log.models.segment import Segment
from controlplane.request_log.recent_decisions import recent_decisions
from gateway.contracts.recent_question import RunningRequest
from gateway.contracts.stored_decision import FailedAttempt, TokenizerWait
from routing.policy.policy_document import RoutingPolicy
from routing.values import reasons
from routing.values.engine_pair import EnginePair
from tests.controlplane.request_log.store.records import START, keep, on_time, stored
from tests.page_text import page_text
from tests.web.request_log.fake_decisions import FakeGateway
from tests.web.role_clients import client_of, make_person, make_pool
from web.request_log import decision_pictures as pictures
from web.request_log.decisions import PAGE_ROWS

pytestmark = pytest.mark.django_db

LATE = "0199f3c2-7d41-7c0e-8000-000000000001"
QUERIES = 12
"""Of a page of decisions, whatever their number: session, person and grants among them."""


@pytest.fixture
def kept(db: None) -> None:
    """Store a late decision and one on time in pool-a, and one in pool-b."""
    for slug in ("pool-a", "pool-b"):
        make_pool(slug)
    keep(stored(LATE), on_time("d-2", START + 1), on_time("d-3", START + 2, tenant_id="other", arm="canary"))
    keep(on_time("d-4", START + 3, client_request_id="job-7"))
    DecisionIndex.objects.filter(decision_id="d-4").update(pool="pool-b")


@pytest.fixture
def viewer(kept: None) -> Client:
    return client_of(make_person("viewer"))


def show(client: Client, address: str, status: int = 200) -> str:
    answer = client.get(address)
    assert answer.status_code == status, answer.content[:500]
    return page_text(answer).replace("\u202f", " ")


def listed(page: str) -> list[str]:
    return [name for name in (LATE, "d-2", "d-3", "d-4") if f'href="/requests/{name}"' in page]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", [LATE, "d-2", "d-3", "d-4"]),
        ("?late=1", [LATE]),
        ("?tenant=other", ["d-3"]),
        ("?pool=pool-b", ["d-4"]),
        ("?engine=engine-17&cause=trade", [LATE]),
        ("?mismatch=late_event", [LATE]),
        ("?since=2027-01-15T08:00:02&until=2027-01-15T08:00:03", ["d-3"]),
        ("?reason=random", []),
        ("?arm=canary", ["d-3"]),
        ("?arm=live", []),
    ],
)
def test_decisions_are_listed(viewer: Client, query: str, names: list[str]) -> None:
    assert listed(show(viewer, f"/requests{query}")) == names


def test_the_strip_follows_the_chosen_times_up_to_a_day(viewer: Client) -> None:
    page = show(viewer, "/requests?since=2026-01-01T01:00:00&until=2026-01-01T07:00:00")
    assert "No requests from 01:00:00 to 07:00:00 UTC" in page
    page = show(viewer, "/requests?since=2026-01-01T00:00:00&until=2026-01-03T07:00:00")
    assert "No requests from 2 Jan 07:00:00 to 3 Jan 07:00:00 UTC" in page
    assert "last 24 h of the chosen time" in page
    page = show(viewer, f"/requests?since={time.time() - 86_400:.0f}&pool=pool-a")
    assert "No requests in the last 1 d" in page
    assert "Snapshot of page load" in page, "a day is not counted again each few seconds"
    assert re.search(r'href="/requests\?pool=pool-a&amp;since=\d+" aria-current="true">24 h</a>', page)
    assert "Updated every second" in show(viewer, f"/requests?since={time.time() - 3600:.0f}")


def test_arm_is_filtered_by_name_and_named_in_its_rows(viewer: Client) -> None:
    page = show(viewer, "/requests?arm=canary")
    assert '<option value="canary" selected>canary</option>' in page
    assert '<option value="control">holdback</option>' in page
    assert "arm is <b>canary</b>" in page
    assert "v41 canary</td>" in page
    assert "canary</td>" not in show(viewer, "/requests?tenant=acme")


def test_id_redirects_to_its_decision(viewer: Client) -> None:
    answer = viewer.get(f"/requests?id={LATE[:20]}")
    assert (answer.status_code, answer["Location"]) == (302, f"/requests/{LATE}")


def test_client_request_id_redirects_to_its_decision_and_is_shown_there(viewer: Client) -> None:
    answer = viewer.get("/requests?id=job-7")
    assert (answer.status_code, answer["Location"]) == (302, "/requests/d-4")
    assert '<dt>X-Request-Id</dt><dd title="job-7">job-7</dd>' in show(viewer, "/requests/d-4")
    assert "X-Request-Id</dt>" not in show(viewer, "/requests/d-2")
    assert listed(show(viewer, "/requests?id=job-")) == []


def test_the_caller_is_shown_with_its_way_agent_and_parent_session(viewer: Client) -> None:
    keep(on_time("d-5", START + 4, door="haproxy", agent="planner", session="a" * 12, parent_session="b" * 12))
    page = show(viewer, "/requests/d-5")
    assert '<dt>Came by</dt><dd title="HAProxy">HAProxy</dd>' in page
    assert '<dt>Agent</dt><dd title="planner">planner</dd>' in page
    assert f'<a href="/requests?session={"a" * 12}"' in page
    assert f'<a href="/requests?session={"b" * 12}">s-bbbb</a>' in page
    of_others = show(viewer, "/requests/d-2")
    assert "Came by</dt>" not in of_others
    assert "started by" not in of_others


@pytest.mark.parametrize("query", ["since=yesterday", "since=2027-01-15&until=2027-01-14"])
def test_unreadable_values_are_reported(viewer: Client, query: str) -> None:
    assert 'role="alert"' in show(viewer, f"/requests?{query}", 400)


def test_invalid_filter_counts_nothing(viewer: Client) -> None:
    page = show(viewer, "/requests?since=garbage", 400)
    assert not re.search(r"\d lines?, \d+ ms", page)
    assert re.search(r"\d lines?, \d+ ms", show(viewer, "/requests"))


def test_unknown_engine_is_reported(viewer: Client) -> None:
    assert "No engine named nope" in show(viewer, "/requests?engine=nope")


def test_late_decision_has_the_same_icon_in_the_table_as_on_its_page(viewer: Client) -> None:
    assert re.search(r"#s-late\"/></svg><span>Late<", show(viewer, "/requests?late=1"))


def test_late_failed_and_rejected_have_their_own_filters_counts_and_shapes(viewer: Client) -> None:
    keep(
        on_time("d-5", START + 4, outcome="failed", late=True, first_token_after_s=None),
        on_time("d-6", START + 5, outcome="rejected", late=True, first_token_after_s=None, cached_tokens=None),
        on_time("d-7", START + 6, outcome="cancelled"),
    )
    DecisionIndex.objects.filter(decision_id="d-6").update(engine="", prompt_tokens=0)
    span = "since=2027-01-15T08:00:00&until=2027-01-15T08:01:00"
    for state, name, word in (("late", LATE, "Late"), ("failed", "d-5", "Failed"), ("rejected", "d-6", "Rejected")):
        page = show(viewer, f"/requests?state={state}&{span}")
        assert re.findall(r'class="ledger-open ledger-time" href="/requests/([^"]*)"', page) == [name]
        assert f'#s-{state}"/></svg><span>{word}<' in page
        counts = re.findall(r"<span>([A-Z][a-z ]+)</span>\s*<b>([^<]*)</b>", page)
        assert counts == [
            ("All ended", "7"), ("On time", "3"), ("Late", "1"), ("Failed", "1"), ("Rejected", "1"), ("Running", "—"),
        ]  # fmt: skip
        assert f'<h1 id="decision-title">1 {state} request from 08:00:00 to 08:01:00 UTC</h1>' in page
    row = page.partition('id="decision-rows"')[2].partition("</tr>")[0]
    assert [cell.strip() for cell in re.findall(r'<td class="number">\s*([^<]*)', row)] == ["—", "—", "—"]
    assert "<td>—</td>" in row
    show(viewer, "/requests?state=slow", 400)


def test_the_title_is_the_finding_of_the_time_shown(viewer: Client) -> None:
    now = time.time()
    assert '<h1 id="decision-title">No requests in the last 15 min</h1>' in show(viewer, "/requests")
    keep(on_time("t-1", now - 400), stored("t-2", now - 300), *(on_time(f"s-{n}", now - n, share=0.5) for n in (5, 6)))
    keep(stored("t-3", now - 200, outcome="failed", error="timeout"), stored("t-4", now - 4000))
    title = '<h1 id="decision-title">{} in the last 15 min</h1>'
    assert title.format("7 requests, 1 late, 1 failed") in show(viewer, "/requests")
    assert title.format("1 failed request") in show(viewer, "/requests?state=failed")
    assert title.format("5 requests, none late, failed or rejected") in show(viewer, "/requests?state=on_time")
    soon = f"/requests?since={now - 900:.0f}&until={now + 90_000:.0f}"
    assert "7 requests, 1 late, 1 failed in the last 15 min" in plain(show(viewer, soon)), "a day that is not over"
    assert "2 requests, 1 late from 08:00:00 to 08:00:02 UTC" in show(
        viewer, "/requests?since=2027-01-15T08:00:00&until=2027-01-15T08:00:02"
    )
    news = viewer.get("/requests/tap?after=0&strip=1").json()
    assert plain(news["title"]) == "7 requests, 1 late, 1 failed in the last 15 min"


def plain(text: str) -> str:
    return text.replace("\u202f", " ")


def test_filters_fold_into_one_disclosure_with_chips_of_the_active_ones(viewer: Client) -> None:
    page = " ".join(show(viewer, "/requests?tenant=acme&engine=engine-17&group=reason").split())
    assert re.search(r'<details class="decision-filters">\s*<summary class="button">.*?Filters\s*<b>2</b>', page)
    assert page.count('aria-label="Remove the filter ') == 2
    assert '<input type="hidden" name="group" value="reason">' in page
    assert 'href="/requests?tenant=acme&amp;engine=engine-17&amp;group=cause"' in unordered(page)
    assert '<details class="decision-filters" open>' in show(viewer, "/requests?ttft_from=fast", 400)


def unordered(page: str) -> str:
    return page.replace("engine=engine-17&amp;tenant=acme", "tenant=acme&amp;engine=engine-17")


def test_requests_that_still_run_come_first_where_late_ones_are_listed(viewer: Client) -> None:
    # The query uses the bus of this test.
    recent_decisions.cache_clear()
    gateway = FakeGateway(get_bus())
    waiting = RunningRequest("r-1", "pool-a", "acme", "k", "", 900, START, 7.2, 3.5)
    gateway.running = (
        waiting,
        RunningRequest("r-2", "pool-a", "acme", "k", "engine-17", 900, START + 1, 1.0, 3.5),
        RunningRequest("r-3", "pool-b", "other", "k", "engine-17", 0, START + 2, 9.0, 3.5, 4.0),
    )
    page = show(viewer, "/requests?state=late")
    assert page.index("Waiting 7.20 s") < page.index("Answering for 5.00 s") < page.index(LATE)
    assert ('href="/requests/r-3"' in page, "r-1" in page, "r-2" in page) == (True, False, False)
    assert "No first token for 1.00 s" in show(viewer, "/requests?state=running")
    assert "Waiting" not in show(viewer, "/requests?state=running&tenant=other")
    assert "Waiting" not in show(viewer, "/requests")
    tapped = viewer.get("/requests/tap?after=0&late=1&strip=1").json()
    assert "Waiting" in tapped["running"]
    from controlplane.fleet.models.pool import Pool

    person = client_of(make_person("pool_viewer", Pool.objects.get(slug="pool-b")))
    seen = show(person, "/requests?state=running")
    assert ("Answering" in seen, "Waiting" in seen) == (True, False)
    gateway.stop()
    recent_decisions.cache_clear()


def test_strip_extrapolates_from_sampled_decisions(viewer: Client) -> None:
    DecisionIndex.objects.filter(decision_id="d-2").update(share=0.1)
    page = show(viewer, "/requests?since=2027-01-15T08:00:00&until=2027-01-15T08:01:00")
    assert "13 requests, 1 late from 08:00:00 to 08:01:00 UTC, 10 per second at most" in " ".join(page.split())


@pytest.mark.parametrize(
    ("now_s", "begins"), [(10, "0.00%"), (60, "0.00%"), (120, "50.00%"), (150, "75.00%"), (180, ""), (1000, "")]
)
def test_last_minute_of_the_strip_is_marked_as_incomplete(
    viewer: Client, monkeypatch: pytest.MonkeyPatch, now_s: int, begins: str
) -> None:
    """Only finished requests are counted, so the newest bars are always too low."""
    monkeypatch.setattr("web.request_log.decisions.time", lambda: START + now_s)
    page = show(viewer, "/requests?since=2027-01-15T08:00:00&until=2027-01-15T08:02:00")
    assert re.findall(r'class="strip-running" x="([^"]*)" width="100%"', page) == ([begins] if begins else [])
    assert ("last minute still running" in page) is bool(begins)


def test_people_see_only_their_pools(kept: None) -> None:
    from controlplane.fleet.models.pool import Pool

    client = client_of(make_person("pool_viewer", Pool.objects.get(slug="pool-b")))
    assert listed(show(client, "/requests")) == ["d-4"]
    show(client, f"/requests/{LATE}", 404)
    assert client.get(f"/requests/{LATE}.json").status_code == 404
    assert client.get("/requests/tap?after=0").json()["count"] == 1


def test_live_update_returns_newer_rows(viewer: Client, kept: None) -> None:
    newest = DecisionIndex.objects.latest("pk").pk
    keep(on_time("d-5", START + 9))
    tapped = viewer.get(f"/requests/tap?after={newest}&strip=1").json()
    assert (tapped["count"], tapped["after"]) == (1, newest + 1)
    assert 'href="/requests/d-5"' in tapped["rows"]
    assert "decision-strip-picture" in tapped["strip"]
    assert viewer.get(f"/requests/tap?after={tapped['after']}").json()["count"] == 0
    assert viewer.get(f"/requests/tap?after={newest}&late=1").json()["count"] == 0
    assert viewer.get("/requests/tap?after=x").status_code == 400


def test_older_decisions_are_on_the_next_page(viewer: Client, kept: None) -> None:
    keep(*(on_time(f"more-{number:03}", START - 100 - number) for number in range(PAGE_ROWS)))
    page = show(viewer, "/requests")
    older = page.split('rel="next"')[0].rpartition('href="')[2].partition('"')[0]
    assert "more-049" in show(viewer, older)
    assert LATE not in show(viewer, older)


def test_page_takes_the_same_queries_for_any_content(
    viewer: Client, kept: None, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    keep(*(on_time(f"more-{number:03}", START - number) for number in range(200)))
    with django_assert_max_num_queries(QUERIES):
        show(viewer, "/requests")
    with django_assert_max_num_queries(QUERIES):
        show(viewer, f"/requests/{LATE}")


def test_documented_decision_has_the_documented_text(viewer: Client) -> None:
    page = show(viewer, f"/requests/{LATE}")
    assert "<h1>Sent to e-17 for its cache; e-04 would have been 2.73 s faster</h1>" in page
    assert "Late by 470 ms" in page
    assert "Load: waited for cached blocks" in page
    assert "2.03 s" in page
    assert page.count("block-found") == 12
    assert page.count("block-missing") == 6
    assert "Cause: <b>late event</b>" in page
    assert "e-04 would have been chosen if" in page
    assert "stored because it was late" in " ".join(page.split())
    assert "style=" not in page


def test_failed_rows_and_pages_say_why_and_have_no_regret(viewer: Client, kept: None) -> None:
    failed = stored("broken", START + 60, outcome="failed", error="broken_stream", first_token_after_s=1.8)
    keep(failed, stored("odd", START + 61, outcome="failed", error="odd_code", first_token_after_s=1.8))
    page = show(viewer, "/requests?state=failed")
    assert "Failed, connection lost while streaming" in page
    assert "Failed, odd code" in page
    assert page.count('<span title="">—</span>') == 2
    page = " ".join(show(viewer, "/requests/broken").split())
    assert re.search(r"decision-big.>\s*—", page)
    assert "The request failed, which does not judge the choice." in page
    assert "against e-04" not in page


def test_rejected_page_names_the_limit_of_its_policy_version(viewer: Client, kept: None) -> None:
    pool = Pool.objects.select_related("policy").get(slug="pool-a")
    routing = msgspec.to_builtins(RoutingPolicy(queue_limit=1234))
    PolicyVersion.objects.create(policy=pool.policy, number=41, routing_document=routing)
    keep(
        stored(
            "full", START + 50, engine_id="", reason="queue_full", candidates=(), outcome="rejected",
            error="queue_full", first_token_after_s=None, cached_tokens=None, regret=None, known=(), mismatch="",
            dispatched_after_s=None,
        )
    )  # fmt: skip
    assert "Rejected, queue full" in show(viewer, "/requests?state=rejected")
    DecisionIndex.objects.filter(decision_id="full").update(reason="no_engine")
    assert "Rejected, no engine available" in show(viewer, "/requests?state=rejected")
    page = " ".join(show(viewer, "/requests/full").split())
    assert '<dt>Queue limit</dt><dd title="1,234 requests, policy v41">' in page


def test_only_people_who_may_start_a_what_if_are_offered_one(viewer: Client) -> None:
    assert "data-whatif" not in show(viewer, f"/requests/{LATE}")
    assert "data-whatif" in show(client_of(make_person("operator")), f"/requests/{LATE}")


def test_json_equals_that_of_the_api(viewer: Client) -> None:
    document = json.loads(viewer.get(f"/requests/{LATE}.json").content)
    assert document["story"]["title"].startswith("Sent to e-17")
    assert document["record"]["regret"]["seconds"] == pytest.approx(2.73)


def test_decision_without_figures_is_described(viewer: Client, kept: None) -> None:
    bare = stored(
        "bare", START + 50, engine_id="", reason="no_engine", candidates=(), outcome="rejected", error="no_engine",
        first_token_after_s=None, cached_tokens=None, regret=None, known=(), mismatch="", dispatched_after_s=None,
    )  # fmt: skip
    keep(bare)
    page = show(viewer, "/requests/bare")
    assert "<h1>Rejected: no engine was available</h1>" in page


def test_deleted_record_is_reported(viewer: Client, kept: None) -> None:
    Segment.objects.update(data=b"damaged")
    assert "it cannot be read" in show(viewer, f"/requests/{LATE}", 410)
    assert "No record of nobody-made-it" in show(viewer, "/requests/nobody-made-it", 404)


def test_empty_store_states_the_next_step(db: None) -> None:
    assert "No decisions yet" in show(client_of(make_person("viewer")), "/requests")


def test_pair_shows_why_its_second_engine_decodes() -> None:
    record = stored("d-pair", 1.0)
    pair = EnginePair("1", "decode-7", 1, reasons.LEAST_TPOT, 0.02, 640)
    decision = msgspec.structs.replace(record.decision, pair=pair)
    named = dict(pictures.facts(msgspec.structs.replace(record, decision=decision, decode_engine_name="d-7")))
    assert named["Decode engine"] == "d-7, fastest tokens"


def bars(parts: list[pictures.Bar]) -> list[tuple[str, str, str]]:
    return [(bar.term, bar.at, bar.words.replace("\u202f", " ")) for bar in parts]


def test_time_before_the_decision_is_a_separate_segment_in_all_rows() -> None:
    shown = pictures.timeline(
        stored(queued_s=0.0, dispatched_after_s=0.0, decided_after_s=2.5, first_token_after_s=5.15, asked_after_s=2.5)
    )
    assert shown is not None
    assert [part[0] for part in bars(shown["estimated"])] == ["before", "queue", "prefill"]
    assert bars(shown["estimated"])[:2] == [("before", "0.00%", "2.50 s"), ("queue", shown["dispatched"], "2.86 s")]
    assert bars(shown["actual"])[:2] == [("before", "0.00%", "2.50 s"), ("engine", shown["dispatched"], "2.06 s")]
    assert shown["instead"][0].term == "before"
    assert [(part["words"], part["took"].replace("\u202f", " ")) for part in shown["before"]] == [("Gateway", "2.50 s")]


def test_tokenizer_earlier_attempt_and_gateway_are_separate_segments() -> None:
    shown = pictures.timeline(
        stored(
            queued_s=9.0, dispatched_after_s=9.0, decided_after_s=9.0, asked_after_s=5.0, first_token_after_s=9.7,
            tokenizers=(TokenizerWait("engine-03", "e-03", 4.0),),
            failures=(FailedAttempt("engine-03", "e-03", "connect", 5.0, 8.5),),
        )
    )  # fmt: skip
    assert shown is not None
    took = {part["words"]: part["took"].replace("\u202f", " ") for part in shown["before"]}
    assert took == {
        "Gateway": "1.00 s",
        "Tokenizer of e-03": "4.00 s",
        "Until an engine was chosen": "500 ms",
        "Attempt on e-03": "3.50 s",
    }
    assert [bar.term for bar in shown["actual"]] == ["before", "tokenizer", "before", "attempt", "prefill"]


def test_wait_after_the_decision_starts_at_the_decision() -> None:
    shown = pictures.timeline(stored(queued_s=3.36, decided_after_s=0.5))
    assert shown is not None
    assert [part[0] for part in bars(shown["actual"])] == ["before", "queue", "prefill"]
    assert bars(shown["actual"])[1][2] == "2.86 s"
    assert pictures.inputs(stored(decided_after_s=0.5))[0][1].startswith("2.86")
