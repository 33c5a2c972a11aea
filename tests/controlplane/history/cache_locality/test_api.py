"""Rings, shared prefixes, and hits over REST, from a gateway's samples on the bus."""

from __future__ import annotations

import time

import pytest

from controlplane.history.cache_locality import api as cache_locality
from controlplane.history.cache_locality.intake import CacheLocalityIntake
from gateway.bus.bus import InProcessBus
from gateway.contracts.cache_locality_sample import (
    TOPIC,
    CacheLocalitySample,
    EngineCacheLocality,
    PoolCacheLocality,
    SharedPrefix,
    SplitMean,
    SplitSpan,
    encode_cache_locality,
)
from routing.rings.ring_plan import RingPlan
from tests.controlplane.platform.api.world import Api

pytestmark = pytest.mark.django_db

ENGINES = ("e-a", "e-2", "e-3", "e-4")


def pool_word(requests: int = 40, rings: RingPlan | None = None) -> PoolCacheLocality:
    span = SplitSpan(60.0, 40, SplitMean(0.1, 0.0, 0.4), SplitMean(0.5, 0.0, 0.6))
    return PoolCacheLocality(
        pool_id="pool-a", placement="dual_map", policy_version=3, block_tokens=16, requests=requests, sampled=requests,
        span_s=60.0, accepting=ENGINES, rings=rings, keys={"00000000000004d2": 30},
        engines=tuple(
            EngineCacheLocality(
                engine_id=item, name=f"name-{item}", accepts=True, requests=10, split=(span,), trust="degraded",
                trust_reason="it had 50% of the tokens", trust_since=1_700_000_000.0, cause="eviction", compared=20,
                differing=12, believed_tokens=1000, reported_tokens=500,
            )
            for item in ENGINES
        ),
        prefixes=(SharedPrefix("aa" * 8, -1, 0, 1, 4, 30, ("e-a",), 2), SharedPrefix("bb" * 8, 0, 1, 5, 6, 10)),
    )  # fmt: skip


@pytest.fixture
def locality_bus(monkeypatch: pytest.MonkeyPatch) -> InProcessBus:
    """Return the bus to which the API's intake is subscribed."""
    bus = InProcessBus()
    intake = CacheLocalityIntake(bus)
    monkeypatch.setattr(cache_locality, "cache_locality_intake", lambda: intake)
    return bus


def publish(bus: InProcessBus, *pools: PoolCacheLocality, age_s: float = 0.0, topic: str = TOPIC) -> None:
    bus.publish(topic, encode_cache_locality(CacheLocalitySample(at=time.time() - age_s, pools=pools)))


def test_rings_report_shares_and_keys_moved_by_a_leaving_engine(api: Api, locality_bus: InProcessBus) -> None:
    publish(locality_bus, pool_word(rings=RingPlan(2, 100, True)))
    shown = api.get("pools/pool-a/rings").json()
    assert (shown["rings"], shown["virtual_nodes"], shown["ideal"], shown["moved"]) == (2, 100, 0.25, None)
    assert sum(item["share"] for item in shown["engines"]) == pytest.approx(1)
    assert {item["dispatched"] for item in shown["engines"]} == {0.25}
    for name in ("e-3", "name-e-3"):
        gone = api.get(f"pools/pool-a/rings?without={name}").json()
        assert gone["without"] == "e-3"
        assert sum(item["gain"] for item in gone["engines"] if item["gain"] is not None) == pytest.approx(gone["moved"])
        assert gone["keys_changed"] == pytest.approx(2 * gone["moved"])
    rejected = api.get("pools/pool-a/rings?without=e-99")
    assert rejected.status_code == 400
    assert "e-99" in rejected.json()["detail"]


def test_pool_without_rings_reports_the_requests_of_its_engines(api: Api, locality_bus: InProcessBus) -> None:
    publish(locality_bus, pool_word())
    shown = api.get("pools/pool-a/rings").json()
    assert (shown["rings"], shown["ideal"]) == (0, None)
    assert [(item["share"], item["dispatched"]) for item in shown["engines"]] == [(None, 0.25)] * 4
    assert api.get("pools/pool-a/rings?without=e-3").status_code == 400


def test_prefixes_ttft_and_hits_are_reported(api: Api, locality_bus: InProcessBus) -> None:
    publish(locality_bus, pool_word())
    shown = api.get("pools/pool-a/cache_locality").json()
    assert [(item["parent"], item["share"]) for item in shown["prefixes"]] == [(None, 0.75), ("aa" * 8, 0.25)]
    assert shown["engines"][0]["ttft"][0]["p90"] == {"queue_s": 0.5, "transfer_s": 0.0, "prefill_s": 0.6}
    hits = api.get("engines/e-a/hits").json()
    assert (hits["ratio"], hits["trust"], hits["cause"], hits["differing"]) == (0.5, "degraded", "eviction", 12)
    assert hits["trust_since"].startswith("2023-11-14T22:13:20")


def test_figures_without_a_recent_report_are_unknown(api: Api, locality_bus: InProcessBus) -> None:
    publish(locality_bus, pool_word(), age_s=60.0)
    locality_bus.publish(TOPIC + "/x", b"noise")
    assert api.get("pools/pool-a/cache_locality").json()["at"] is None
    assert api.get("engines/e-a/hits").json()["ratio"] is None


def test_gateway_with_the_most_requests_is_shown(api: Api, locality_bus: InProcessBus) -> None:
    publish(locality_bus, pool_word(requests=40))
    publish(locality_bus, pool_word(requests=90), topic="gateways/g2/cache_locality")
    locality_bus.publish("gateways/g3/cache_locality", b"no sample")
    shown = api.get("pools/pool-a/cache_locality").json()
    assert (shown["gateway"], shown["gateways"], shown["requests"]) == ("g2", 2, 90)
