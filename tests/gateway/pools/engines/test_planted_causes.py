"""Causes injected into a running gateway: records name the right one, and routing trusts the index accordingly."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from controlplane.request_log.hindsight import Hindsight
from gateway.base.settings import GatewaySettings
from gateway.contracts.hit_sample import EVICTION, LATE_EVENT, SALT, TEMPLATE, TOKENIZER
from gateway.contracts.regret import LOAD, STALE_VIEW
from gateway.contracts.request_batch import TOPIC, decode_batch, decode_decisions
from gateway.contracts.stored_decision import StoredDecision
from gateway.pools.events.event_ledger import EXACT, Trust
from gateway.pools.pool.health_watch import judge_hits
from gateway.pools.traffic.past_moments import PastMoments
from kvstore.keys.block_keys import token_block_keys
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import MODEL, ServedGateway, served
from tests.patience import until

SLOW = GatewaySettings(probe_interval_s=0.1, request_interval_s=60.0)
BLOCK = 16
REQUESTS = 16


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[ServedGateway]:
    """Serve one engine whose index is fed by events of the test."""
    async with ScriptedEngine() as engine, served([engine.url], tmp_path, gateway_settings=SLOW) as gateway:
        trust_events(gateway)
        yield gateway


def trust_events(gateway: ServedGateway) -> None:
    """Feed every engine's index by complete events."""
    pool = gateway.gateway.pools["pool"]
    for engine in pool.engines.values():
        ledger = SimpleNamespace(counts={})
        engine.intake = cast("Any", SimpleNamespace(trust=Trust(EXACT, ""), ledger=ledger, received=PastMoments()))
    pool.refresh()


async def asked(gateway: ServedGateway, tokens: list[int], report: dict[str, int]) -> str:
    """Send one request of these tokens with this engine report; return the decision's id."""
    _, answer, _ = await gateway.post("/api/v1/route", {"model": MODEL, "token_ids": tokens, "wait": False})
    name = str(answer["decision_id"])
    await gateway.post(f"/api/v1/requests/{name}/first_token", {})
    await gateway.post(f"/api/v1/requests/{name}/complete", report)
    return name


def known(gateway: ServedGateway, tokens: list[int]) -> None:
    """Record in the index that the engine holds these tokens."""
    pool = gateway.gateway.pools["pool"]
    for engine_id in pool.engines:
        pool.router.blocks_stored(engine_id, token_block_keys(pool.seed(""), tokens, BLOCK))


async def sent(gateway: ServedGateway) -> list[StoredDecision]:
    """Return the current records."""
    batches: list[bytes] = []
    unsubscribe = gateway.gateway._bus.subscribe(TOPIC, lambda _topic, value: batches.append(value))
    await gateway.gateway.requests.flush()
    gateway.gateway.health.ended_hits.take()
    for engine in gateway.pool.engines.values():
        engine.hits._judged_s = float("-inf")
    judge_hits(gateway.pool, time.monotonic())
    unsubscribe()
    return [decision for value in batches for decision in decode_decisions(decode_batch(value).decisions)]


def prompts(blocks: int = 6) -> list[list[int]]:
    return [[number * 1000 + index for index in range((blocks + number % 3) * BLOCK)] for number in range(REQUESTS)]


async def test_confirmed_hits_are_not_a_mismatch(gateway: ServedGateway) -> None:
    for tokens in prompts():
        known(gateway, tokens)
        await asked(gateway, tokens, {"cached_tokens": len(tokens) - BLOCK, "prompt_tokens": len(tokens)})
    assert {item.mismatch for item in await sent(gateway)} == {""}
    assert next(iter(gateway.gateway.pools["pool"].engines.values())).hits.verdict.grade == "exact"


@pytest.mark.parametrize(
    ("longer", "cause"), [(lambda number: 7, TEMPLATE), (lambda number: 5 + 3 * number, TOKENIZER)]
)
async def test_an_engine_with_different_token_counts_is_named_and_no_longer_trusted(
    gateway: ServedGateway, longer: Any, cause: str
) -> None:
    for number, tokens in enumerate(prompts()):
        known(gateway, tokens)
        await asked(gateway, tokens, {"cached_tokens": 0, "prompt_tokens": len(tokens) + longer(number)})
    await sent(gateway)
    pool = gateway.gateway.pools["pool"]
    (engine,) = pool.engines.values()
    assert (engine.hits.verdict.grade, engine.hits.verdict.cause) == ("blind", cause)
    trust = engine.index_trust(by_dispatches=False)
    assert trust.grade == "blind"
    tokens = prompts()[0]
    await asked(gateway, tokens, {"cached_tokens": 0, "prompt_tokens": len(tokens) + longer(0)})
    (after,) = await sent(gateway)
    assert (after.decision.hit_tokens, after.mismatch) == (0, cause)
    assert after.believed_tokens == len(tokens) - BLOCK


async def test_every_ended_request_judges_the_index_whatever_the_log_samples(tmp_path: Path) -> None:
    settings = replace(SLOW, decisions_kept_per_s=0.0, sample_interval_s=0.05)
    async with ScriptedEngine() as one, served([one.url], tmp_path, gateway_settings=settings) as gateway:
        trust_events(gateway)
        (engine,) = gateway.pool.engines.values()
        for tokens in prompts():
            known(gateway, tokens)
            await asked(gateway, tokens, {"cached_tokens": 0, "prompt_tokens": len(tokens) + 7})
        await until(lambda: engine.hits.verdict.grade == "blind")
        assert engine.hits.verdict.cause == TEMPLATE
        assert await sent(gateway) == []


async def test_a_different_salt_is_named_if_the_pool_isolates(tmp_path: Path) -> None:
    async with (
        ScriptedEngine() as engine,
        served([engine.url], tmp_path, gateway_settings=SLOW, isolated=True) as gateway,
    ):
        for _ in range(2):
            for tokens in prompts():
                await asked(gateway, tokens, {"cached_tokens": 0})
        await sent(gateway)
        (live,) = gateway.gateway.pools["pool"].engines.values()
        assert (live.hits.verdict.grade, live.hits.verdict.cause) == ("blind", SALT)
        assert "cache_salt" in live.index_trust(by_dispatches=True).reason
        assert gateway.gateway.pools["pool"].router.view.roster.trusts[0] == 0.0


async def test_dropped_events_are_named_by_the_event_gap(gateway: ServedGateway) -> None:
    (engine,) = gateway.gateway.pools["pool"].engines.values()
    assert engine.intake is not None
    engine.hits.note_events({"gaps": 1}, time.monotonic())
    engine.intake.ledger.counts["gaps"] = 1
    for tokens in prompts():
        known(gateway, tokens)
        await asked(
            gateway, tokens, {"cached_tokens": 2 * BLOCK + BLOCK * (len(tokens) % 2), "prompt_tokens": len(tokens)}
        )
    assert {item.mismatch for item in await sent(gateway)} == {LATE_EVENT}


@pytest.mark.parametrize(("age_s", "cause"), [(5.0, STALE_VIEW), (0.0, LOAD)])
async def test_an_unseen_longer_wait_is_explained_by_the_report_age(tmp_path: Path, age_s: float, cause: str) -> None:
    async with (
        ScriptedEngine() as one,
        ScriptedEngine() as other,
        served([one.url, other.url], tmp_path, gateway_settings=SLOW) as gateway,
    ):
        pool = gateway.gateway.pools["pool"]
        trust_events(gateway)
        tokens = list(range(40 * BLOCK))
        # One engine holds the whole prompt, so that the other is a further candidate.
        pool.router.blocks_stored("engine-0", token_block_keys(pool.seed(""), tokens, BLOCK))
        for engine in pool.engines.values():
            engine.report_times.note(time.monotonic() - age_s)
        _, answer, _ = await gateway.post("/api/v1/route", {"model": MODEL, "token_ids": tokens, "wait": False})
        record = gateway.app.recent.get(answer["decision_id"])
        assert record is not None
        assert len(record.decision.candidates) == 2
        # Unreported load: the first token comes three seconds later than estimated.
        gateway.app._route_api._lifecycle.first_token(record, record.arrived_s + 3.0)
        gateway.app._route_api._lifecycle.completed(
            record, record.arrived_s + 4.0, cached_tokens=record.decision.hit_tokens, output_tokens=1
        )
        (stored,) = await sent(gateway)
    stored = Hindsight().judged(stored)
    assert stored.regret is not None
    assert stored.regret.cause == cause
    assert sum(stored.regret.parts.values()) == pytest.approx(stored.regret.seconds)
    assert stored.regret.seconds == pytest.approx(3.0, abs=0.5)


async def test_trust_returns_when_the_evidence_expires(gateway: ServedGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = gateway.gateway.pools["pool"]
    for number, tokens in enumerate(prompts()):
        known(gateway, tokens)
        await asked(gateway, tokens, {"cached_tokens": 0, "prompt_tokens": len(tokens) + number})
    await sent(gateway)
    (engine,) = pool.engines.values()
    assert engine.hits.verdict.grade == "blind"
    judge_hits(pool, time.monotonic() + 1000)
    assert engine.hits.verdict.grade == "exact"
    assert pool.router.view.roster.trusts[0] == 1.0


async def test_blocks_removed_during_the_request_are_named_as_evicted(gateway: ServedGateway) -> None:
    (engine,) = gateway.gateway.pools["pool"].engines.values()
    for removed, tokens in enumerate(prompts(), start=1):
        known(gateway, tokens)
        _, answer, _ = await gateway.post("/api/v1/route", {"model": MODEL, "token_ids": tokens, "wait": False})
        engine.hits.note_events({"BlockRemoved": removed}, time.monotonic())
        name = answer["decision_id"]
        await gateway.post(f"/api/v1/requests/{name}/first_token", {})
        report = {"cached_tokens": BLOCK * (1 + removed % 3), "prompt_tokens": len(tokens)}
        await gateway.post(f"/api/v1/requests/{name}/complete", report)
    assert {item.mismatch for item in await sent(gateway)} == {EVICTION}
    assert engine.hits.verdict.cause == EVICTION
