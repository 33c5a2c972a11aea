"""Connecting an engine creates missing objects, reuses existing ones, and rejects unsuitable engines."""

from __future__ import annotations

from dataclasses import replace

import pytest
from django.contrib.auth.models import User
from pytest_django.fixtures import Settings

from controlplane.fleet.connect.address import engine_address, is_allowed, may_be_asked
from controlplane.fleet.connect.connection import EngineConnection, Wishes, make_connection, plan_connection, targets
from controlplane.fleet.connect.engine_facts import VLLM, ConnectedEngineFacts, ConnectRejectedError
from controlplane.fleet.connect.words import fact_lines, made_words
from controlplane.fleet.engine_url import CheckedUrl
from controlplane.fleet.models.engine import DesiredState, Engine
from controlplane.fleet.models.pool import KeySource, Pool
from controlplane.fleet.models.region import Region
from controlplane.fleet.preflight.lifecycle import preflight_of
from controlplane.platform.actor import CONSOLE, command, person
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.roles import NotAllowedError
from controlplane.policies.models.policy import Policy
from gateway.pools.engines.vllm_adapter import KvEventSource

pytestmark = pytest.mark.django_db

ACTOR = command("connect")
URL = "http://10.3.0.7:8000"
FACTS = ConnectedEngineFacts(
    url=URL,
    product=VLLM,
    version="0.32.0",
    names=("meta/Llama-3.1-8B", "llama"),
    adapters=(),
    weights="meta/Llama-3.1-8B",
    context_tokens=4096,
    block_tokens=32,
    kv_tokens=99_968,
    ranks=1,
    events="tcp://10.3.0.7:5557",
    replay="tcp://10.3.0.7:5558",
    tokenizes=True,
)


@pytest.fixture(autouse=True)
def nothing_allowed(settings: Settings) -> None:
    settings.ENGINE_NETWORKS = ()


def at(url: str) -> CheckedUrl:
    return engine_address(url)


def planned(facts: ConnectedEngineFacts = FACTS, url: str = URL, **wishes: object) -> EngineConnection:
    return plan_connection(replace(facts, url=url), at(url), Wishes(**wishes))  # type: ignore[arg-type]


def connected(url: str, **wishes: object) -> Engine:
    host = url.removeprefix("http://").partition(":")[0]
    facts = replace(FACTS, events=f"tcp://{host}:5557", replay="")
    return make_connection(planned(facts, url, **wishes), actor=ACTOR)


def rejected(facts: ConnectedEngineFacts, **wishes: object) -> ConnectRejectedError:
    with pytest.raises(ConnectRejectedError) as caught:
        planned(facts, **wishes)
    return caught.value


def test_first_engine_creates_region_pool_and_policy_from_its_facts() -> None:
    plan = planned()
    assert made_words(plan) == "New region local, new pool llama-3-1-8b, new engine 10-3-0-7-8000."
    assert not Pool.objects.exists()
    engine = make_connection(plan, actor=ACTOR)
    pool = engine.pool
    assert (pool.slug, pool.served_model, pool.block_tokens) == ("llama-3-1-8b", "meta/Llama-3.1-8B", 32)
    assert (pool.max_prompt_tokens, pool.key_source, pool.region.slug) == (4096, "exact", "local")
    assert pool.policy.live_version is not None
    assert engine.kv_events_endpoint == "tcp://10.3.0.7:5557"
    assert engine.desired_state == DesiredState.MAINTENANCE
    seen = preflight_of(engine)
    assert seen is not None and seen.then_ready


def test_allowed_address_is_audited() -> None:
    pool = make_connection(planned(), actor=ACTOR).pool
    assert pool.engine_networks == "10.3.0.7/32"
    event = AuditEvent.objects.get(verb="pool.create")
    assert (event.actor_name, event.why) == ("connect", f"Allowed 10.3.0.7 for {URL}")
    connected("http://10.3.0.6:8000")
    event = AuditEvent.objects.get(verb="pool.change")
    assert event.after["engine_networks"] == "10.3.0.6/31"


def test_address_is_contacted_once_it_is_allowed_for_any_pool() -> None:
    assert not may_be_asked(at(URL))
    pool = make_connection(planned(), actor=ACTOR).pool
    assert may_be_asked(at(URL))
    assert is_allowed(at(URL), pool)
    assert not is_allowed(at(URL), None)


def test_further_engines_join_the_pool_of_their_model_under_any_of_its_names() -> None:
    first = connected(URL)
    Pool.objects.update(served_model="llama")
    second = connected("http://10.3.0.8:8000")
    assert (second.pool, Region.objects.count(), Policy.objects.count()) == (first.pool, 1, 1)


def test_connecting_again_only_repeats_the_preflight() -> None:
    first = connected(URL)
    before = preflight_of(first)
    again = connected(URL)
    after = preflight_of(again)
    assert (again, Engine.objects.count()) == (first, 1)
    assert before is not None and after is not None and after.run_id != before.run_id


def test_other_block_size_is_rejected_once_an_engine_of_the_pool_serves() -> None:
    engine = connected(URL)
    other = replace(FACTS, block_tokens=16, events="")
    Engine.objects.filter(pk=engine.pk).update(desired_state=DesiredState.READY)
    with pytest.raises(ConnectRejectedError) as caught:
        planned(other, "http://10.3.0.9:8000")
    rejection = caught.value
    assert rejection.sentence == "Its blocks have 16 tokens, those of pool llama-3-1-8b 32."
    assert "--block-size 32" in rejection.remedy
    assert "--block-size 32" in rejection.start_line and "--kv-events-config" in rejection.start_line
    assert "--block-size 16" not in rejection.start_line


def test_without_kv_events_the_error_names_the_missing_flag() -> None:
    rejection = rejected(replace(FACTS, events=""))
    assert rejection.sentence.startswith("It publishes no KV events")
    assert "--kv-events-config '{" in rejection.remedy
    assert rejection.start_line.startswith("vllm serve meta/Llama-3.1-8B ")
    assert not Pool.objects.exists()


def test_without_an_event_socket_of_vllm_the_error_names_the_tried_ports() -> None:
    rejection = rejected(replace(FACTS, events="", reports_sockets=False))
    assert rejection.sentence == (
        "It does not report its KV event socket, and no publisher answers at port 18000 or 5557."
    )
    assert "register it on the Engines page" in rejection.remedy and "--kv-events-config '{" in rejection.remedy


RANKED = replace(
    FACTS,
    ranks=2,
    sockets=tuple(
        KvEventSource(f"tcp://10.3.0.7:{5557 + rank}", f"tcp://10.3.0.7:{6557 + rank}", rank) for rank in (0, 1)
    ),
)


def test_each_rank_of_an_address_becomes_an_engine() -> None:
    ranks = targets(RANKED, at(URL))
    engines = [make_connection(plan_connection(*item, Wishes()), actor=ACTOR) for item in ranks]
    assert [
        (engine.name, engine.url, engine.connect_url, engine.rank, engine.kv_events_endpoint) for engine in engines
    ] == [
        ("10-3-0-7-8000-rank-0", f"{URL}#0", URL, 0, "tcp://10.3.0.7:5557"),
        ("10-3-0-7-8000-rank-1", f"{URL}#1", URL, 1, "tcp://10.3.0.7:5558"),
    ]
    assert {engine.pool.slug for engine in engines} == {"llama-3-1-8b"}
    assert [target[1].url for target in targets(RANKED, at(f"{URL}#1"))] == [f"{URL}#1"], "one that is named, alone"
    assert targets(FACTS, at(URL)) == [(FACTS, at(URL))]
    with pytest.raises(ConnectRejectedError, match="no data-parallel rank 2"):
        targets(RANKED, at(f"{URL}#2"))
    assert made_words(plan_connection(*ranks[0], Wishes()), 1).endswith("and 1 more, one per rank.")


def test_prefill_only_engine_is_registered_with_its_role() -> None:
    facts = replace(FACTS, role="prefill")
    assert make_connection(planned(facts), actor=ACTOR).role == "prefill"
    assert "Prefill only." in fact_lines(facts)


def test_rank_of_an_engine_registered_with_all_its_ranks_is_rejected() -> None:
    connected(URL)
    with pytest.raises(ConnectRejectedError, match="is registered for all its ranks"):
        plan_connection(*targets(RANKED, at(URL))[0], Wishes())


@pytest.mark.parametrize(("change", "words"), [({"ranks": 2}, "data-parallel"), ({"tokenizes": False}, "/tokenize")])
def test_engine_without_exact_keys_is_rejected_unless_estimates_are_allowed(change: dict[str, int], words: str) -> None:
    facts = replace(FACTS, **change)  # type: ignore[arg-type]
    rejection = rejected(facts)
    assert words in rejection.sentence
    assert rejection.estimable
    pool = make_connection(planned(facts, approximate=True), actor=ACTOR).pool
    assert pool.key_source == KeySource.APPROXIMATE


def test_pool_of_another_model_is_rejected(pool: Pool) -> None:
    assert "pool chat serves m-8b" in rejected(FACTS, pool="chat").sentence


def test_ambiguous_pool_or_region_requires_a_name(pool: Pool) -> None:
    Region.objects.create(slug="there", name="There")
    assert "--region" in rejected(FACTS).remedy
    assert planned(region="there").region_slug == "there"
    for slug in ("one", "two"):
        Pool.objects.create(slug=slug, name=slug, region=pool.region, served_model="llama", policy=pool.policy)
    assert "--pool" in rejected(FACTS).remedy
    assert planned(pool="two").pool_slug == "two"
    rejection = rejected(FACTS, pool="three")
    assert rejection.sentence == "meta/Llama-3.1-8B is served already, by one, two."


def test_only_admins_connect() -> None:
    plan = planned()
    with pytest.raises(NotAllowedError):
        make_connection(plan, actor=person(User.objects.create(username="op"), via=CONSOLE))


@pytest.mark.parametrize("url", ["http://169.254.169.254", "http://metadata", "ftp://10.0.0.1:1", "10.0.0.1:8000"])
def test_invalid_engine_address_is_never_contacted(url: str) -> None:
    with pytest.raises(ConnectRejectedError):
        engine_address(url)


def test_client_base_url_is_accepted() -> None:
    assert engine_address(f"{URL}/v1/").url == URL


def test_reported_facts_are_summarized_in_a_few_lines() -> None:
    assert fact_lines(replace(FACTS, adapters=("sql",), replay="")) == [
        "vLLM 0.32.0 serves meta/Llama-3.1-8B, also named llama.",
        "Blocks of 32 tokens, KV cache of 99,968 tokens, context of 4,096 tokens.",
        "KV events tcp://10.3.0.7:5557, no replay.",
        "LoRA adapters: sql.",
    ]
