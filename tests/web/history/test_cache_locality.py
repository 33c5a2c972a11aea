"""The Cache locality pages: rings, keys moved by a leaving engine, shared prefixes, TTFT, hits, and tables."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import msgspec
import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from controlplane.fleet.models.pool import Pool
from controlplane.history.cache_locality.intake import CacheLocalityIntake
from gateway.contracts.cache_locality_sample import PoolCacheLocality, SharedPrefix
from gateway.contracts.fleet_sample import EngineFaults
from routing.rings.ring_shares import ring_shares
from tests.page_text import page_text
from tests.web.fake_fleet import FakeFleet
from tests.web.fleet.topology.topology_fleet import make_engines
from tests.web.history.cache_locality_sample import PAIRS, intake_of, pool_cache_locality
from tests.web.role_clients import ROLES, client_of, make_person
from web.history import cache_locality
from web.history.cache_locality_rings import TURN, _dashes

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("feed")]
Report = Callable[..., PoolCacheLocality]


@pytest.fixture
def report(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> Report:
    """Return a function that reports on the pool as a gateway does."""
    engines = make_engines(pool, 4)

    def show_report(*args: object, **changes: object) -> PoolCacheLocality:
        word = pool_cache_locality(engines, *args, **changes)  # type: ignore[arg-type]
        intake = intake_of(word)
        monkeypatch.setattr(cache_locality, "cache_locality_intake", lambda: intake)
        return word

    return show_report


def show(client: Client, query: str = "") -> str:
    answer = client.get(f"/cache/pools/chat{query}")
    assert answer.status_code == 200
    return re.sub(r"[ \n]+", " ", page_text(answer))


def panel(page: str, name: str) -> str:
    return page.partition(f'id="cache-locality-{name}"')[2].partition("</section>")[0]


def test_of_equally_long_prefixes_the_title_names_the_one_that_most_requests_share(
    viewer: Client, report: Report
) -> None:
    shared = [SharedPrefix(key, -1, 0, 1, 2, requests) for key, requests in (("6a37cb" * 2, 62), ("cc3400" * 2, 29))]
    report(prefixes=tuple(shared))
    assert "62.0\u202f% of the requests share their first 32 tokens" in show(viewer)


def test_title_names_the_most_notable_fact(viewer: Client, report: Report) -> None:
    report()
    page = show(viewer)
    assert "45.0\u202f% of the requests share their first 144 tokens, which no engine holds." in page
    assert "The index of e-0001 is blind, 10.0\u202f% of the prediction: tokenizer." in page
    assert "Over 100 requests of the last 1\u202fmin 2\u202fs, one in 2 sampled" in page


def test_exact_shares_are_in_chart_and_table(viewer: Client, report: Report) -> None:
    word = report()
    rings = panel(show(viewer), "rings")
    for engine in ring_shares(PAIRS, word.accepting).engines:
        assert f"<b>{100 * engine.share:.1f}</b>" in rings
        for share in engine.by_ring:
            assert f'<td class="number muted">{100 * share:.1f}</td>' in rings
    assert rings.count("cache-locality-arc ") == 8
    assert "Select an engine" in rings


def test_selected_engine_shows_where_its_keys_would_move(viewer: Client, report: Report) -> None:
    word = report()
    rings = panel(show(viewer, "?without=e-0003&window=1"), "rings")
    shares = ring_shares(PAIRS, word.accepting, without=word.accepting[2])
    assert shares.moved is not None
    assert f"Without e-0003, {100 * shares.moved:.1f}\u202f% of key positions move" in rings
    gains = [f"+{100 * engine.gain:.1f}" for engine in shares.engines if engine.gain is not None]
    assert len(gains) == 3
    assert all(f'cache-locality-gains">{gain}</td>' in rings for gain in gains)
    assert rings.count('class="cache-locality-arc cache-locality-gone"') == 2
    # Clearing keeps the rest of the page's state.
    assert 'data-clear href="/cache/pools/chat?window=1"' in rings
    assert panel(show(viewer, "?without=e-9999"), "rings") == panel(show(viewer), "rings")


def test_arcs_of_all_engines_fill_each_ring(report: Report) -> None:
    word = report()
    for ring in PAIRS.over(word.accepting):
        drawn = 0
        for dashes in _dashes(ring):
            numbers = [int(part) for part in dashes.split()]
            assert sum(numbers) == TURN
            assert len(numbers) % 2 == 0
            drawn += sum(numbers[::2])
        assert drawn == TURN


def test_pool_without_rings_shows_requests_per_engine(viewer: Client, report: Report) -> None:
    report(None)
    rings = panel(show(viewer, "?without=e-0001"), "rings")
    assert "No rings here" in rings
    assert "<code>least_cost</code> may send any prompt to any engine" in rings
    assert rings.count('class="cache-locality-plain"') == 4
    assert '<td class="number">50.0</td>' in rings
    assert "<circle" not in rings


def test_prefixes_are_hashes_with_their_holders_in_chart_and_table(viewer: Client, report: Report) -> None:
    report()
    prefixes = panel(show(viewer, "?prefix=bb12000000000000"), "prefixes")
    assert "bb1200, 3 blk: blocks 7 to 9, 144 tokens from the start; 45 requests, 45.0\u202f%;" in prefixes
    assert "held by no engine" in prefixes
    assert 'width="60.000%"' in prefixes
    assert "6a37cb, 6 blk" in prefixes
    assert prefixes.count("cache-locality-key-end") == 3  # legend and two prefixes
    twin = prefixes.partition("<tbody>")[2]
    assert twin.count("<tr") == 3
    assert "e-0001, e-0002" in twin
    assert "none" in twin
    assert "2 blocks" in twin
    assert "6a37cb0000000000" not in twin


def test_ttft_is_a_stacked_chart_with_a_table_and_links_to_late_decisions(viewer: Client, report: Report) -> None:
    report()
    ttft = panel(show(viewer, "?window=15"), "ttft")
    assert re.findall(r'<span class="split-name">([^<]+)', ttft) == ["e-0004", "e-0003", "e-0002", "e-0001"]
    assert "/requests?pool=chat&amp;engine=e-0004&amp;late=1" in ttft
    assert 'href="/cache/pools/chat?window=15" aria-current="true"' in ttft
    first = ttft.partition("<tbody>")[2].partition("</tr>")[0]
    cells = re.findall(r'<td class="number">([^<]+)', first)
    narrow = "\u202f"
    assert cells == ["20", *(f"{item}" for item in (
        f"250{narrow}ms", f"0{narrow}s", f"3.50{narrow}s", f"3.75{narrow}s",
        f"1.00{narrow}s", f"500{narrow}ms", f"4.00{narrow}s", f"5.50{narrow}s",
    ))]  # fmt: skip


def test_hit_deviations_show_cause_and_start_per_engine(viewer: Client, report: Report) -> None:
    report()
    page = show(viewer)
    hits = panel(page, "hits")
    assert "<b>Tokenizer.</b> It had 10% of the tokens in the index." in hits
    assert "2\u202fmin 5\u202fs ago" in hits or "2\u202fmin 6\u202fs ago" in hits
    assert "/requests?pool=chat&amp;engine=e-0001&amp;mismatch=tokenizer" in hits
    assert "<b>77.5</b>" in hits  # of the pool: 12400 of 16000
    scatter = panel(page, "scatter")
    assert scatter.count('class="hit-over"') == 3
    assert scatter.count("<td>") == 12
    assert "−288" in scatter


def test_pool_without_reports_shows_a_message_and_no_chart(
    viewer: Client, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    intake: CacheLocalityIntake = intake_of()
    monkeypatch.setattr(cache_locality, "cache_locality_intake", lambda: intake)
    assert "No gateway reports this pool" in show(viewer)
    assert "No recent data from a gateway" in page_text(viewer.get("/cache"))


def test_idle_pool_has_empty_panels_that_state_what_is_missing(viewer: Client, report: Report) -> None:
    report(requests=0, sampled=0, span_s=0.0, prefixes=(), keys={}, engines=())
    page = show(viewer)
    assert "No shared prefixes" in panel(page, "prefixes")
    assert "No first token in this span" in panel(page, "ttft")
    assert "Nothing to compare" in panel(page, "scatter")


def test_overview_lists_pools_with_their_ratio(viewer: Client, report: Report) -> None:
    report()
    page = re.sub(r"\s+", " ", page_text(viewer.get("/cache")))
    assert '<a class="ledger-open" href="/cache/pools/chat">' in page
    assert "77.5" in page
    assert "1 of 4 with degraded trust: tokenizer" in page


def test_overview_has_memory_evictions_and_what_to_do(
    viewer: Client, report: Report, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = FakeFleet(engines=4, pools=1, events=False).sample_at(30.0, time.time())
    engines = [
        msgspec.structs.replace(
            engine, pool_id=pool.slug, kv_usage=0.97, faults=EngineFaults(evictions=1500)
        )
        for engine in sample.engines
    ]  # fmt: skip
    mine = msgspec.structs.replace(
        sample.pools[0], pool_id=pool.slug, hit_share=0.6, prompt_tokens_per_s=20_000.0, tokens_per_s=8_000.0
    )

    class Feed:
        latest = msgspec.structs.replace(sample, pools=(mine,), engines=tuple(engines))

    monkeypatch.setattr(cache_locality, "fleet_feed", Feed)

    def shown(**changes: object) -> str:
        report(**changes)
        return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page_text(viewer.get("/cache"))))

    page = shown()
    assert "60.0 % of prompt tokens cached" in page
    assert "Prefill saved 1.5 engines" in page
    assert "KV memory in use 97.0 % running requests; 4 of 4 full" in page
    assert "Evicted from cache 6.0k blocks" in page or "Evicted from cache 6k blocks" in page
    assert "Hits of 1 engine differ from the index" in page
    trusted = tuple(msgspec.structs.replace(item, trust="exact") for item in report().engines)
    assert "45.0 % of requests" not in page
    hot = (SharedPrefix("6a37cb0000000000", -1, 0, 1, 6, 60, ("e",), 2, ("n-1",), ("n-2",)),)
    assert "60.0 % of requests share a prefix that one engine holds: spread it. Rebalancing" in shown(
        engines=trusted, prefixes=hot
    )
    assert "KV memory is full, so prefixes are evicted: add engines or KV nodes. KV store" in shown(
        engines=trusted, prefixes=()
    )


@pytest.mark.parametrize("role", ROLES)
def test_people_without_a_role_are_rejected(pool: Pool, report: Report, role: str) -> None:
    report()
    status = client_of(make_person(role, pool)).get("/cache/pools/chat").status_code
    assert status == (403 if role == "nobody" else 200)


def test_refresh_has_only_the_live_section_and_takes_few_queries(
    viewer: Client, report: Report, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    report()
    with django_assert_num_queries(4):  # session, account, grants, pool
        fragment = show(viewer, "?fragment=1&without=e-0002")
    assert "<html" not in fragment
    assert "Without e-0002" in fragment
