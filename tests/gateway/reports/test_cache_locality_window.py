"""The pool's data for the Cache locality page: sampled prompt prefixes, and sums of the parts of TTFT.

A gateway's report of how prompts spread over engines, from requests that it really served.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any, cast

import pytest

from gateway.base.settings import GatewaySettings
from gateway.contracts.cache_locality_sample import (
    TOPIC,
    CacheLocalitySample,
    decode_cache_locality,
    encode_cache_locality,
)
from gateway.contracts.wire import UnreadableMessageError
from gateway.pools.pool.health_watch import judge_hits
from gateway.pools.pool.recent_decisions import DecisionRecord
from gateway.pools.traffic.prefix_icicle import MAX_BLOCKS
from gateway.pools.traffic.prefix_window import MAX_PROMPTS, SPAN_S, PrefixWindow
from gateway.pools.traffic.ttft_split import BUCKET_S, TtftSplit
from gateway.reports.cache_locality_sampler import CacheLocalitySampler
from gateway.reports.request_outbox import split_of
from kvstore.keys.block_keys import token_block_keys
from routing.policy.policy_document import RoutingPolicy, Stage
from routing.rings.ring_plan import RingPlan
from routing.values.decision import Decision
from routing.values.engine_pair import EnginePair
from routing.values.load_options import Fetch
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import MODEL, ServedGateway, served


def test_prompts_are_truncated_and_expire() -> None:
    window = PrefixWindow()
    window.note(range(500), "e-1", 10.0)
    window.note((), "e-1", 11.0)
    (kept,) = window.recent(12.0)
    assert (len(kept.keys), kept.engine_id, kept.weight) == (MAX_BLOCKS, "e-1", 1)
    assert window.recent(10.0 + SPAN_S + 1) == []


def test_of_much_traffic_every_nth_prompt_is_kept_and_represents_n() -> None:
    window = PrefixWindow()
    for second in range(120):
        for number in range(100):
            window.note((number,), "e-1", second + number / 100)
        window.recent(second + 1.0)
    kept = window.recent(120.0)
    assert len(kept) == MAX_PROMPTS
    assert kept[-1].weight == 6
    assert kept[-1].at_s - kept[0].at_s > 50
    assert sum(item.weight for item in kept) == pytest.approx(6000, rel=0.05)


def test_the_parts_of_a_span_add_up_to_its_mean() -> None:
    split = TtftSplit()
    for number in range(100):
        late = number >= 90
        split.note(("e-1", 2.0 if late else 0.1, 0.0, 0.5, 1000.0 - number / 10))
    one, five, fifteen = split.spans("e-1", 1000.0)
    assert (one.requests, five.requests, fifteen.requests) == (100, 100, 100)
    assert one.mean.queue_s == pytest.approx(0.29)
    assert one.mean.prefill_s == pytest.approx(0.5)
    assert one.p90.queue_s == pytest.approx(0.1)
    split.note(("e-1", 2.0, 0.0, 0.5, 1000.0))
    assert split.spans("e-1", 1000.0)[0].p90.queue_s == pytest.approx(2.0)


def test_of_many_requests_one_represents_those_like_it() -> None:
    split = TtftSplit()
    split.note(("e-1", 0.1, 0.2, 0.3, 1000.0), 4)
    split.note(("e-1", 0.6, 0.2, 0.3, 1000.0))
    one = split.spans("e-1", 1000.0)[0]
    assert (one.requests, one.mean.queue_s) == (5, pytest.approx(0.2))


def test_old_half_minutes_leave_the_short_span_first() -> None:
    split = TtftSplit()
    split.note(("e-1", 0.1, 0.2, 0.3, 1000.0))
    assert [item.span_s for item in split.spans("e-1", 1000.0 + 60 + BUCKET_S)] == [300.0, 900.0]
    assert split.spans("e-1", 3000.0) == ()
    split.note(("e-1", 0.1, 0.2, 0.3, 3000.0))
    split.keep_only(["e-2"])
    assert split.spans("e-1", 3000.0) == ()


def record(ttft_s: float | None, **fields: Any) -> DecisionRecord:
    decision = Decision(
        "d",
        "pool",
        "e-1",
        1,
        "least_cost",
        "slack",
        1,
        "least_cost",
        100,
        0,
        0.0,
        0.0,
        **{"decided_s": 50.0, "queued_s": 0.5, **fields},
    )
    made = DecisionRecord(decision, cast("Any", None), "t", "tokens", 50.0, 1.0, 0.0, ("e-1",))
    made.first_token_s = None if ttft_s is None else 50.0 + ttft_s
    return made


def test_a_requests_time_is_split_into_queue_transfer_and_prefill() -> None:
    assert split_of(record(2.0)) == ("e-1", 0.5, 0.0, 1.5, 52.0)
    assert split_of(record(0.25)) == ("e-1", 0.25, 0.0, 0.0, 50.25)
    assert split_of(record(2.0, queued_s=0.0, decided_s=51.5)) == ("e-1", 1.5, 0.0, 0.5, 52.0)
    assert split_of(record(None)) is None
    pair = record(2.0, pair=EnginePair("1", "e-2", 1, "least_tpot", 0.0, 0))
    pair.attempts, pair.handed_over_s = ("e-1", "e-2"), 51.6
    assert split_of(pair) == ("e-1", 0.5, pytest.approx(0.4), pytest.approx(1.1), 52.0)


def test_an_estimated_fetch_time_is_not_a_measured_part() -> None:
    assert split_of(record(2.0, fetch=Fetch("e-2", 4, 0.25))) == ("e-1", 0.5, 0.0, 1.5, 52.0)


def test_time_spent_on_a_failed_engine_is_in_no_part() -> None:
    again = record(2.0)
    again.attempts = ("e-2", "e-1")
    assert split_of(again) is None


SLOW = GatewaySettings(probe_interval_s=0.1, request_interval_s=60.0, cache_locality_interval_s=0.05)
BLOCK = 16
SHARED = list(range(4 * BLOCK))


async def ask(gateway: ServedGateway, number: int, **report: Any) -> str:
    """Send one request with the shared prefix and a unique end."""
    tokens = SHARED + [10_000 * number + index for index in range(2 * BLOCK)]
    _, answer, _ = await gateway.post("/api/v1/route", {"model": MODEL, "token_ids": tokens, "wait": False})
    name = str(answer["decision_id"])
    await gateway.post(f"/api/v1/requests/{name}/first_token", {})
    await gateway.post(f"/api/v1/requests/{name}/complete", {"cached_tokens": 0, **report})
    return name


async def sampled(gateway: ServedGateway) -> CacheLocalitySample:
    """Return the current sample."""
    await gateway.gateway.requests.flush()
    gateway.gateway.health.ended_hits.take()
    judge_hits(gateway.pool, time.monotonic())
    sampler = CacheLocalitySampler(gateway.gateway._bus, gateway.gateway.pools.values)
    return await sampler.sample(time.monotonic(), time.time())


@pytest.mark.parametrize("placement", ["dual_map", "least_cost"])
async def test_prefixes_holders_rings_and_ttft_match_the_requests(tmp_path: Path, placement: str) -> None:
    policy = RoutingPolicy(placement=Stage(name=placement))
    async with (
        ScriptedEngine() as one,
        ScriptedEngine() as other,
        served([one.url, other.url], tmp_path, gateway_settings=SLOW, policy=policy) as gateway,
    ):
        pool = gateway.pool
        keys = token_block_keys(pool.seed(""), SHARED, BLOCK)
        pool.router.blocks_stored("engine-1", keys)
        for number in range(6):
            await ask(gateway, number + 1)
        (prefix,) = (await sampled(gateway)).pools
        assert (prefix.pool_id, prefix.placement, prefix.requests, prefix.sampled) == ("pool", placement, 6, 6)
        shared = prefix.prefixes[0]
        assert (shared.key, shared.first_block, shared.last_block) == (f"{keys[-1]:016x}", 1, 4)
        assert (shared.requests, shared.holders, shared.parent) == (6, ("engine-1",), -1)
        assert sum(engine.requests for engine in prefix.engines) == 6
        spans = [engine.split[0] for engine in prefix.engines if engine.split]
        assert sum(span.requests for span in spans) == 6
        assert all(span.mean.prefill_s > 0 for span in spans)
        if placement == "dual_map":
            assert prefix.rings == RingPlan(2, 100, True, 2, True)
            assert prefix.accepting == ("engine-0", "engine-1")
            assert sum(prefix.keys.values()) == 6
            assert shared.key_blocks in (2, 3, 4)
        else:
            assert (prefix.rings, prefix.keys, shared.key_blocks) == (None, {}, 0)


async def test_trust_carries_the_time_since_when_its_cause_holds(tmp_path: Path) -> None:
    async with ScriptedEngine() as engine, served([engine.url], tmp_path, gateway_settings=SLOW) as gateway:
        sampler = CacheLocalitySampler(gateway.gateway._bus, gateway.gateway.pools.values)
        (before,) = (await sampler.sample(time.monotonic(), 1000.0)).pools
        assert (before.engines[0].trust, before.engines[0].trust_since) == ("blind", None)
        (live,) = gateway.pool.engines.values()
        live.hits.verdict = type(live.hits.verdict)("blind", 0.1, "salt", 20, 20)
        (after,) = (await sampler.sample(time.monotonic(), 2000.0)).pools
        (later,) = (await sampler.sample(time.monotonic(), 3000.0)).pools
        assert (after.engines[0].cause, after.engines[0].trust_since) == ("salt", 2000.0)
        assert later.engines[0].trust_since == 2000.0


async def test_the_published_sample_contains_no_prompt_content(tmp_path: Path) -> None:
    async with ScriptedEngine() as engine, served([engine.url], tmp_path, gateway_settings=SLOW) as gateway:
        received: list[bytes] = []
        gateway.gateway._bus.subscribe(TOPIC, lambda _topic, value: received.append(value))
        await ask(gateway, 1)
        await ask(gateway, 2)
        received.clear()
        for _ in range(100):
            if received and decode_cache_locality(received[-1]).pools[0].prefixes:
                break
            await asyncio.sleep(0.05)
        sample = decode_cache_locality(received[-1])
        assert sample.pools[0].prefixes[0].requests == 2
        assert len(sample.pools[0].prefixes[0].key) == 16


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"noise", "not a cache locality sample"),
        (encode_cache_locality(CacheLocalitySample(schema_version=9, at=1.0, pools=())), "schema 9"),
    ],
)
def test_a_malformed_sample_is_rejected(data: bytes, words: str) -> None:
    with pytest.raises(UnreadableMessageError, match=words):
        decode_cache_locality(data)
