"""The Engines page shows registered engines to people who may see them, in few queries."""

from __future__ import annotations

import re
import time
from typing import Any

import msgspec
import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from controlplane.access.models.role_grant import RoleGrant
from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.learned_cost import LearnedCost
from controlplane.fleet.models.pool import Pool
from controlplane.fleet.preflight.steps import FAILED, Step, fresh_steps, replaced, to_progress
from controlplane.platform.bus import get_bus
from controlplane.platform.models.job_run import JobRun, JobState
from controlplane.platform.role import Role
from gateway.contracts.fleet_sample import FleetSample, PoolRole
from routing.cost.cost_fit import FittedCost
from routing.cost.cost_model import PrefillCost
from tests.page_text import page_text
from tests.web.fleet.topology.topology_fleet import encoded, make_engines, make_pool, sample_of
from web.fleet.topology.drains import drain_watch
from web.live.feed import FleetFeed

pytestmark = pytest.mark.django_db
LIST_QUERIES = 7
"""Session, account, roles, pools, engines, number of tenants, running trials."""
DRAWER_QUERIES = 11
"""And the engine, its preflight, its last changes."""
CPU_S = 0.3


@pytest.fixture(autouse=True)
def fresh_watch() -> None:
    drain_watch.cache_clear()


@pytest.fixture
def pool(db: None) -> Pool:
    return make_pool()


def sign_in(client: Client, role: Role | None, pool: Pool | None = None) -> Client:
    user = User.objects.create(username=f"{role or 'nobody'}")
    if role is not None:
        RoleGrant.objects.create(user=user, role=role, pool=pool)
    client.force_login(user)
    return client


@pytest.fixture
def operator(client: Client) -> Client:
    return sign_in(client, Role.OPERATOR)


def show(feed: FleetFeed, sample: FleetSample) -> None:
    feed.take(sample)


def page(client: Client, query: str = "") -> str:
    answer = client.get(f"/engines{query}")
    assert answer.status_code == 200
    return page_text(answer)


def names(text: str) -> list[str]:
    """Return the names of the engines in the order of the table."""
    return re.findall(r"data-drawer>(e-\d+)</a>", text)


def test_shared_pool_names_its_owner_and_gateways_that_decide_alone(
    operator: Client, pool: Pool, feed: FleetFeed
) -> None:
    sample = sample_of(make_engines(pool, 1))
    assert "queue owner" not in page(operator)
    roles = tuple(
        PoolRole(gateway=name, role=role, owner=owner, epoch=3, since=time.time(), reason=reason)
        for name, role, owner, reason in (
            ("gw-1:8000", "owner", "gw-1:8000", ""),
            ("gw-2:8000", "alone", "", "the owner is silent"),
        )
    )
    shared = msgspec.structs.replace(sample.pools[0], roles=roles)
    show(feed, msgspec.structs.replace(sample, pools=(shared,)))
    shown = page(operator)
    assert "queue owner gw-1:8000, epoch 3" in shown
    assert "gw-2:8000 decides alone" in shown
    assert "gw-2:8000: the owner is silent, since" in page(operator, f"?settings={pool.slug}")


def test_pool_shows_the_share_of_prompts_with_approximate_keys(operator: Client, pool: Pool, feed: FleetFeed) -> None:
    sample = sample_of(make_engines(pool, 1))
    for share, shown in ((None, False), (0.0, False), (0.125, True)):
        changed = msgspec.structs.replace(sample.pools[0], approximate_share=share)
        show(feed, msgspec.structs.replace(sample, pools=(changed,)))
        words = "blocks of 512 tokens · block keys approximate for 12.5\u202f% of prompts (images, audio) · policy v7"
        assert (words in page(operator)) == shown


def test_engines_are_listed_under_their_pool_and_region(operator: Client, pool: Pool, feed: FleetFeed) -> None:
    other = make_pool("agents", "us-east")
    engines = [*make_engines(pool, 2), *make_engines(other, 1, start=7)]
    show(feed, sample_of(engines))
    text = page(operator)
    order = [
        text.index(word) for word in ("EU-WEST</th>", ">chat-pool</a></b>", ">e-0001<", "US-EAST</th>", ">e-0007<")
    ]
    assert order == sorted(order)
    assert "All 3 engines serve" in text
    assert "3 engines, 2 pools, 2 regions; snapshot v12" in text
    assert "blocks of 512 tokens · policy v7" in text


def test_figures_of_engines_without_reports_are_shown_as_old(operator: Client, pool: Pool, feed: FleetFeed) -> None:
    engines = make_engines(pool, 2)
    show(feed, sample_of(engines, e_0002={"report_age_s": 17.2}))
    text = page(operator)
    assert "2 of 2 engines serve; 1 without reports" in text
    assert text.count("tree-engine silent") == 1
    show(feed, sample_of(engines, e_0001={"report_age_s": 18.0}, e_0002={"report_age_s": 17.2}))
    assert "No reports for 17 s: figures are old" in page(operator).replace("\u202f", " ")


def test_row_shows_state_reason_load_hits_and_trust(operator: Client, pool: Pool, feed: FleetFeed) -> None:
    engines = make_engines(pool, 2)
    lost = {"state": "lost", "reason": "3 connects rejected", "index_trust": "blind", "incarnation": 4}
    show(feed, sample_of(engines, e_0002=lost))
    text = page(operator)
    assert "1 of 2 engines serve; 1 lost" in text
    for word in ("3 connects rejected", "#s-lost", "trust-blind", ">Blind<", "12k tok, 1.0", ">71.4<", ">3, 1<"):
        assert word in text
    assert re.search(r'class="load-fill heat-\d" width="\d+"', text)


def test_engine_without_reports_is_unknown_not_zero(operator: Client, pool: Pool, feed: FleetFeed) -> None:
    make_engines(pool, 1)
    text = page(operator)
    assert "not reported by the gateway" in text
    assert "The gateway has not published a fleet sample" in text
    assert "#s-unknown" in text
    assert "idle" not in text


def test_old_sample_is_shown_as_old(operator: Client, pool: Pool, feed: FleetFeed) -> None:
    sample = sample_of(make_engines(pool, 1))
    show(feed, msgspec.structs.replace(sample, at=time.time() - 60))
    assert "The gateway has not reported for 1\u202fmin" in page(operator)


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("", ["e-0001", "e-0002", "e-0003"]),
        ("?q=E-0002", ["e-0002"]),
        ("?q=10.", ["e-0001", "e-0002", "e-0003"]),
        ("?q=m-8b", ["e-0001", "e-0002", "e-0003"]),
        ("?state=lost", ["e-0003"]),
        ("?state=not-serving", ["e-0003"]),
        ("?pool=chat&q=003", ["e-0003"]),
        ("?sort=load", ["e-0002", "e-0001", "e-0003"]),
        ("?sort=state", ["e-0003", "e-0002", "e-0001"]),
        ("?sort=nonsense&page=nonsense&state=nonsense", []),
        ("?page=99", ["e-0001", "e-0002", "e-0003"]),
    ],
)
def test_filters_and_sort_orders_apply(
    operator: Client, pool: Pool, feed: FleetFeed, query: str, shown: list[str]
) -> None:
    show(
        feed,
        sample_of(
            make_engines(pool, 3),
            e_0002={"in_flight_s": 9.0, "state": "hot"},
            e_0003={"in_flight_s": 0.0, "state": "lost"},
        ),
    )
    assert names(page(operator, query)) == shown


def test_filter_without_matches_is_named(operator: Client, pool: Pool, feed: FleetFeed) -> None:
    make_engines(pool, 3)
    text = page(operator, "?q=nothing&state=lost")
    assert "Filter: text is nothing, state is lost. Engines without the filter: 3." in text


def test_empty_installation_shows_the_next_step(operator: Client, pool: Pool, feed: FleetFeed) -> None:
    assert "No engine in this pool." in page(operator)
    Pool.objects.all().delete()
    assert "No pool exists yet, or you have no role in one" in page(operator)


def test_pages_are_split_on_the_server(operator: Client, pool: Pool, feed: FleetFeed) -> None:
    show(feed, sample_of(make_engines(pool, 230)))
    assert len(names(page(operator))) == 100
    text = page(operator, "?page=3")
    assert len(names(text)) == 30
    assert "201–230 of 230" in text
    assert 'rel="prev" href="/engines?page=2"' in text


@pytest.mark.parametrize("count", [1, 200])
def test_list_takes_a_fixed_number_of_queries(
    operator: Client, pool: Pool, feed: FleetFeed, count: int, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    show(feed, sample_of(make_engines(pool, count)))
    with django_assert_num_queries(LIST_QUERIES):
        page(operator)
    with django_assert_num_queries(LIST_QUERIES - 2):
        assert operator.get("/engines/live").status_code == 200


def test_drawer_takes_few_more_queries(
    operator: Client, pool: Pool, feed: FleetFeed, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    make_engines(pool, 20)
    with django_assert_num_queries(DRAWER_QUERIES):
        page(operator, "?engine=chat-3")


def test_thousand_engines_take_little_time(operator: Client, pool: Pool, feed: FleetFeed) -> None:
    show(feed, sample_of(make_engines(pool, 1000)))
    page(operator)
    for query in ("/engines", "/engines?sort=load&q=e-0", "/engines/live"):
        spent = min(_cpu_s(operator, query) for _ in range(3))
        assert spent < CPU_S, f"{query} took {spent:.3f} s"


def _cpu_s(client: Client, address: str) -> float:
    started = time.process_time()
    client.get(address)
    return time.process_time() - started


@pytest.mark.parametrize(
    ("role", "scoped", "verbs", "registers"),
    [
        (Role.VIEWER, False, False, False),
        (Role.OPERATOR, False, True, True),
        (Role.ADMIN, False, True, True),
        (Role.OPERATOR, True, True, True),
        (Role.VIEWER, True, False, False),
    ],
)
def test_only_operators_see_actions(
    client: Client, pool: Pool, feed: FleetFeed, role: Role, scoped: bool, verbs: bool, registers: bool
) -> None:
    make_engines(pool, 1)
    sign_in(client, role, pool if scoped else None)
    text = page(client, "?engine=chat-1")
    assert (">Drain</a>" in text, ">Delete</a>" in text) == (verbs, verbs)
    assert (">Register engine</a>" in text) == registers
    assert ("confirm-title" in page(client, "?engine=chat-1&do=drain")) == verbs
    assert ("engine-form" in page(client, "?do=register")) == registers


def test_pool_operator_sees_no_other_pool(client: Client, pool: Pool, feed: FleetFeed) -> None:
    other = make_pool("agents")
    show(feed, sample_of([*make_engines(pool, 1), *make_engines(other, 1, start=7)]))
    sign_in(client, Role.OPERATOR, other)
    assert names(page(client)) == ["e-0007"]
    assert "1 engine, 1 pool" in page(client)
    assert "That engine was deleted" in page(client, "?engine=chat-1")
    assert client.get("/engines/chat-1/checklist").status_code == 404
    assert "chat-1" not in client.get("/engines/live").json()["rows"]


def test_person_without_a_role_sees_nothing(client: Client, pool: Pool, feed: FleetFeed) -> None:
    make_engines(pool, 1)
    assert "e-0001" not in page_text(sign_in(client, None).get("/engines"))


def test_quarantined_engine_is_shown_without_new_work(operator: Client, pool: Pool, feed: FleetFeed) -> None:
    show(feed, sample_of(make_engines(pool, 2), e_0002={"state": "quarantined", "reason": "by admin"}))
    assert operator.get("/engines/live").json()["finding"] == "1 of 2 engines serve; 1 quarantined"
    assert "chat-2" in operator.get("/engines/live?state=not-serving").json()["rows"]


def test_live_update_has_the_texts_of_the_rows(operator: Client, pool: Pool, feed: FleetFeed) -> None:
    show(feed, sample_of(make_engines(pool, 2), e_0002={"state": "hot", "reason": "9 s of in-flight work"}))
    answer: dict[str, Any] = operator.get("/engines/live?engine=chat-2").json()
    assert answer["finding"] == "2 of 2 engines serve; 1 hot"
    assert answer["rows"]["chat-2"]["reason"] == "9 s of in-flight work"
    assert answer["rows"]["chat-2"]["word"] == "Hot"
    assert answer["drawer"]["flight"] == "3 requests running, 1 queued request waiting for it."
    assert answer["drawer"]["effect"] == ""
    asked = operator.get("/engines/live?engine=chat-2&do=drain").json()
    assert asked["drawer"]["effect"] == "3 requests finish here, 1 queued request moves to other engines"
    before = answer["list"]
    Engine.objects.filter(engine_id="chat-1").delete()
    assert operator.get("/engines/live").json()["list"] != before


def test_failed_preflight_is_shown_in_the_row_and_in_the_checklist(
    operator: Client, pool: Pool, feed: FleetFeed
) -> None:
    (engine,) = make_engines(pool, 1)
    Engine.objects.update(desired_state="maintenance")
    steps = replaced(fresh_steps(), Step(key="model", state=FAILED, sentence="It serves <x>.", remedy="Start y."))
    now = timezone.now()
    JobRun.objects.create(
        job="preflight",
        shard=engine.pk,
        state=JobState.FAILED,
        started_at=now,
        finished_at=now,
        progress=to_progress(steps),
    )
    text = page(operator, "?engine=chat-1")
    assert "Preflight: It serves &lt;x&gt;." in text
    assert "stopped at 3 of 7" in text
    assert "Start y." in text
    assert "Serve if it passes" in text
    fragment = page_text(operator.get("/engines/chat-1/checklist"))
    assert 'data-unfinished="no"' in fragment
    assert "<html" not in fragment


def test_draining_engine_shows_a_countdown(operator: Client, pool: Pool, feed: FleetFeed) -> None:
    get_bus.cache_clear()
    engines = make_engines(pool, 1)
    Engine.objects.update(desired_state="draining")
    page(operator)
    for left, after in ((9, 8.0), (5, 4.0), (3, 0.0)):
        draining = {"state": "draining", "since": time.time() - 20, "running": left, "bound": 0}
        sample = msgspec.structs.replace(sample_of(engines, e_0001=draining), at=time.time() - after)
        get_bus().publish("fleet", encoded(sample))
        show(feed, sample)
    words = operator.get("/engines/live?engine=chat-1").json()["drawer"]["flight"]
    assert re.fullmatch(r"3 requests left, the longest has run for at least \d+.s; about [45].s to go\.", words)
    get_bus.cache_clear()


def test_markup_in_names_and_reasons_is_escaped(operator: Client, pool: Pool, feed: FleetFeed) -> None:
    bad = {"reason": '"><img src=x onerror=alert(1)>', "state": "lost"}
    show(feed, sample_of(make_engines(pool, 1), e_0001=bad))
    text = page(operator, "?engine=chat-1&q=<script>alert(1)</script>")
    assert "<script>alert" not in text
    assert "<img" not in text


def test_engine_without_any_response_is_not_healthy_idle_or_ready(
    operator: Client, pool: Pool, feed: FleetFeed
) -> None:
    (engine,) = make_engines(pool, 1)
    Engine.objects.update(desired_state="maintenance")
    engine.refresh_from_db()
    silent = {"in_flight_tokens": 0, "in_flight_s": 0.0, "running": 0, "bound": 0, "state": "maintenance"}
    show(feed, sample_of([engine], e_0001=silent | {"answered": False, "report_age_s": None}))
    text = page(operator, f"?engine={engine.engine_id}")
    assert "Never answered" in text
    assert "Healthy" not in text
    assert "idle" not in text
    assert "Return to service" not in text
    show(feed, sample_of([engine], e_0001=silent))
    text = page(operator, f"?engine={engine.engine_id}")
    assert "Healthy" in text
    assert "idle" in text
    assert "Return to service" in text


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ({"running": 33}, "decoding"),
        ({"running": 0}, "idle"),
        ({"running": 33, "in_flight_tokens": 4_000, "in_flight_s": 0.3}, "4.0k tok, 0.3\u202fs"),
    ],
)
def test_engine_that_generates_tokens_is_not_idle(
    operator: Client, pool: Pool, feed: FleetFeed, engine: dict[str, object], words: str
) -> None:
    show(feed, sample_of(make_engines(pool, 1), e_0001={"in_flight_tokens": 0, "in_flight_s": 0.0} | engine))
    text = page(operator)
    loads = {name for name in ("decoding", "idle", "4.0k tok, 0.3\u202fs") if name in text}
    assert loads == {words}


def test_learned_costs_are_hidden_for_an_engine_without_any_response(
    operator: Client, pool: Pool, feed: FleetFeed
) -> None:
    (engine,) = make_engines(pool, 1)
    fitted = FittedCost(prefill=PrefillCost(), samples=300, error=0.1, policy_error=0.3)
    LearnedCost.objects.create(pool=pool, fitted=msgspec.to_builtins(fitted), learned_at=timezone.now())
    for answered in (True, False):
        show(feed, sample_of([engine], e_0001={"answered": answered}))
        assert ("4,096 new tokens" in page(operator, f"?engine={engine.engine_id}")) is answered
