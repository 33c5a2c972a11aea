"""A live pool: health decides which engines get work, restarts empty indices, new snapshots disturb no other engine."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
import zmq.asyncio

from bench.live.loopback_ports import free_port
from gateway.contracts.engine_report import EngineReport
from gateway.contracts.snapshot import ApiKeyEntry
from gateway.pools.engines.breaker import CLOSED, OPEN
from kvstore.events.kv_events import BlockStored, EventBatch, encode_batch
from kvstore.keys.block_keys import token_block_keys
from routing.policy.policy_document import RoutingPolicy, Stage
from routing.values.decision import Dispatched, Rejected
from routing.values.observation import Completed, FirstToken
from tests.gateway.fake_engine import FakePublisher, fake_engine
from tests.gateway.live_gateway import LiveGateway, engine_entry, live_gateway, request, snapshot
from tests.patience import PATIENCE_S, until


def held_blocks(live: LiveGateway, engine_id: str, keys: tuple[int, ...]) -> int:
    """Return how many of these blocks the index attributes to this engine."""
    router = live.pool.router
    target = router.fleet.target_of(engine_id)
    if target is None:
        return 0
    return sum(router.index.targets_of(key, 0) >> target & 1 for key in keys)


async def engine_of(live: LiveGateway, name: str, **kwargs: object) -> str:
    outcome = await live.pool.decide(request(name, **kwargs), hold=False)  # type: ignore[arg-type]
    assert isinstance(outcome, Dispatched)
    return outcome.decision.engine_id


async def test_engines_that_respond_get_work_as_soon_as_start_returns(tmp_path: Path) -> None:
    async with fake_engine() as one, live_gateway(tmp_path, snapshot([engine_entry("a", one.url)])) as live:
        assert await engine_of(live, "r1") == "a"
        assert live.engine("a").breaker.state == CLOSED


async def test_an_engine_that_never_responded_gets_no_work(tmp_path: Path) -> None:
    dead = engine_entry("dead", f"http://127.0.0.1:{free_port()}")
    async with live_gateway(tmp_path, snapshot([dead])) as live:
        outcome = await live.pool.decide(request("r1"), hold=False)
        assert isinstance(outcome, Rejected)
        assert outcome.code == "no_engine"


async def test_a_waiting_request_is_dispatched_as_soon_as_an_engine_responds(tmp_path: Path) -> None:
    async with fake_engine() as one:
        one.set("/health", 503, b"")
        async with live_gateway(tmp_path, snapshot([engine_entry("a", one.url)])) as live:
            waiting = asyncio.create_task(live.pool.decide(request("r1"), hold=True))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            one.set("/health", 200, b"")
            async with asyncio.timeout(PATIENCE_S):
                assert isinstance(await waiting, Dispatched)


async def test_connection_failures_of_requests_trigger_a_probe_that_decides(tmp_path: Path) -> None:
    async with fake_engine() as one, live_gateway(tmp_path, snapshot([engine_entry("a", one.url)])) as live:
        live.report("a")
        await asyncio.sleep(0.05)
        asked = len(one.asked)
        live.engine("a").breaker.record_failure("connect", time.monotonic())
        await until(lambda: len(one.asked) > asked)
        assert live.engine("a").breaker.accepts


async def test_a_dead_engine_is_ejected_by_reports_and_returns_as_a_new_incarnation(tmp_path: Path) -> None:
    async with fake_engine() as other, live_gateway(tmp_path) as live, fake_engine() as one:
        live.publish(snapshot([engine_entry("a", one.url), engine_entry("b", other.url)]))
        await until(lambda: live.gateway.pools and live.engine("a").breaker.accepts)
        one.set("/health", 503, b"")
        live.report("a", healthy=False, reason="health answered 503")
        await until(lambda: live.engine("a").breaker.state == OPEN)
        assert "health answered 503" in live.engine("a").breaker.reason
        assert {await engine_of(live, f"r{number}") for number in range(4)} == {"b"}
        one.set("/health", 200, b"")
        await until(lambda: live.engine("a").breaker.accepts)
        assert live.engine("a").incarnation == 2
        assert live.engine("b").incarnation == 1
        await until(lambda: live.engine("a").breaker.state == CLOSED)


async def test_unreadable_metrics_leave_the_engine_in_service(tmp_path: Path) -> None:
    async with fake_engine() as one, live_gateway(tmp_path, snapshot([engine_entry("a", one.url)])) as live:
        for _ in range(10):
            live.report("a", healthy=False, readable=False, reason="metrics are unreadable: NaN")
            await asyncio.sleep(0.05)
        assert live.engine("a").breaker.state == CLOSED
        await until(lambda: live.shown("a").state == "degraded")
        assert live.shown("a").reason == "metrics are unreadable: NaN"


async def test_garbage_on_the_bus_is_ignored(tmp_path: Path) -> None:
    async with fake_engine() as one, live_gateway(tmp_path, snapshot([engine_entry("a", one.url)])) as live:
        live.bus.publish("load/a", b"\xc1garbage")
        live.bus.publish("snapshot", b"\xc1garbage")
        live.report("nobody")
        await asyncio.sleep(0.05)
        assert await engine_of(live, "r1") == "a"
        assert live.gateway.snapshot_version == 1


async def test_a_changed_process_start_is_a_new_incarnation_counted_once(tmp_path: Path) -> None:
    async with fake_engine() as one, live_gateway(tmp_path, snapshot([engine_entry("a", one.url)])) as live:
        now = time.time()
        for start in (now - 100.0, now - 100.0, now + 1.0, now + 1.0):
            live.report("a", process_start=start, full=True)
        await until(lambda: live.engine("a").incarnation == 2)
        await asyncio.sleep(0.1)
        assert live.engine("a").incarnation == 2


async def test_draining_and_maintenance_stop_only_new_work(tmp_path: Path) -> None:
    async with fake_engine() as one, fake_engine() as two:
        entries = [engine_entry("a", one.url), engine_entry("b", two.url)]
        async with live_gateway(tmp_path, snapshot(entries)) as live:
            names = [await engine_of(live, f"r{number}") for number in range(4)]
            assert set(names) == {"a", "b"}
            drained = [engine_entry("a", one.url, desired_state="draining"), entries[1]]
            live.publish(snapshot(drained, version=2))
            await until(lambda: live.gateway.snapshot_version == 2)
            assert {await engine_of(live, f"s{number}") for number in range(4)} == {"b"}
            loads = {load.engine_id: load for load in live.pool.router.loads(time.monotonic())}
            assert loads["a"].running == names.count("a")
            await until(lambda: live.shown("a").state == "draining")


async def test_a_new_snapshot_adds_and_removes_engines_without_disturbing_others(tmp_path: Path) -> None:
    async with fake_engine() as one, fake_engine() as two:
        a, b = engine_entry("a", one.url), engine_entry("b", two.url)
        async with live_gateway(tmp_path, snapshot([a])) as live:
            await live.pool.decide(request("r1"), hold=False)
            engine = live.engine("a")
            live.publish(snapshot([a, b], version=2))
            await until(lambda: "b" in live.pool.engines and live.engine("b").breaker.accepts)
            assert live.engine("a") is engine
            assert {load.engine_id: load.running for load in live.pool.router.loads(time.monotonic())}["a"] == 1
            live.publish(snapshot([b], version=3))
            await until(lambda: "a" not in live.pool.engines)
            live.pool.observe(Completed("r1"))
            assert await engine_of(live, "r2") == "b"


async def test_the_same_id_at_another_url_is_another_process(tmp_path: Path) -> None:
    async with (
        fake_engine() as one,
        fake_engine() as two,
        live_gateway(tmp_path, snapshot([engine_entry("a", one.url)])) as live,
    ):
        live.publish(snapshot([engine_entry("a", two.url)], version=2))
        await until(lambda: live.engine("a").adapter.url == two.url)
        assert live.engine("a").incarnation == 2


async def test_decisions_carry_the_new_policy_version_after_a_change(tmp_path: Path) -> None:
    async with fake_engine() as one, live_gateway(tmp_path, snapshot([engine_entry("a", one.url)])) as live:
        changed = RoutingPolicy(placement=Stage(name="round_robin"), order=Stage(name="fifo"))
        live.publish(snapshot([engine_entry("a", one.url)], version=2, policy=changed, policy_version=7))
        await until(lambda: live.pool.router.policy_version == 7)
        outcome = await live.pool.decide(request("r1"), hold=True)
        assert isinstance(outcome, Dispatched)
        assert (outcome.decision.placement, outcome.decision.policy_version) == ("round_robin", 7)


async def test_an_invalid_policy_leaves_the_pool_unchanged(tmp_path: Path) -> None:
    async with fake_engine() as one, live_gateway(tmp_path, snapshot([engine_entry("a", one.url)])) as live:
        wrong = RoutingPolicy(placement=Stage(name="no_such_placement"))
        live.publish(snapshot([engine_entry("a", one.url)], version=2, policy=wrong, policy_version=8))
        await until(lambda: live.gateway.snapshot_version == 2)
        assert await engine_of(live, "r1") == "a"
        assert live.pool.router.policy_version == 0


async def test_an_approximate_pool_learns_from_its_own_first_tokens(tmp_path: Path) -> None:
    async with fake_engine() as one, fake_engine() as two:
        entries = [engine_entry("a", one.url), engine_entry("b", two.url)]
        async with live_gateway(tmp_path, snapshot(entries, key_source="approximate")) as live:
            keys = (11, 12, 13)
            where = await engine_of(live, "r1", keys=keys)
            assert held_blocks(live, where, keys) == 0
            live.pool.observe(FirstToken("r1"))
            live.pool.observe(Completed("r1", 0))
            assert held_blocks(live, where, keys) == 3
            await until(lambda: live.shown(where).index_trust == "degraded")


async def test_isolated_tenants_have_different_block_keys(tmp_path: Path) -> None:
    async with fake_engine() as one:
        async with live_gateway(tmp_path, snapshot([engine_entry("a", one.url)], isolated=True)) as live:
            domains = live.pool.domains
            assert live.pool.seed(domains.of("t1")) != live.pool.seed(domains.of("t2"))
        async with live_gateway(tmp_path, snapshot([engine_entry("a", one.url)])) as live:
            assert live.pool.domains.of("t1") == live.pool.domains.of("t2") == ""


async def test_events_feed_the_index_and_a_restart_empties_it(tmp_path: Path) -> None:
    context = zmq.asyncio.Context()
    publisher = FakePublisher(context)
    try:
        async with fake_engine() as one:
            entry = engine_entry(
                "a", one.url, kv_events_endpoint=publisher.endpoint, kv_replay_endpoint=publisher.replay_endpoint
            )
            await publisher.publish(stored([1, 2, 3, 4]))
            async with live_gateway(tmp_path, snapshot([entry])) as live:
                keys = token_block_keys(live.pool.seed(""), [1, 2, 3, 4], 2)
                await until(lambda: held_blocks(live, "a", keys) == 2)
                await until(lambda: live.shown("a").index_trust == "exact")
                outcome = await live.pool.decide(request("r1", keys, 5), hold=False)
                assert isinstance(outcome, Dispatched)
                assert outcome.decision.hit_tokens == 4
                publisher.restart()
                await publisher.publish(stored([9, 9], ts=1.0))
                await until(lambda: live.engine("a").incarnation == 2)
                assert held_blocks(live, "a", keys) == 0
                fresh = token_block_keys(live.pool.seed(""), [9, 9], 2)
                await until(lambda: held_blocks(live, "a", fresh) == 1)
                assert [load.running for load in live.pool.router.loads(time.monotonic())] == [0]
    finally:
        await publisher.close()
        context.destroy(linger=0)


async def test_a_new_model_name_resets_all_indices(tmp_path: Path) -> None:
    async with fake_engine() as one:
        entry = engine_entry("a", one.url)
        async with live_gateway(tmp_path, snapshot([entry], key_source="approximate")) as live:
            await engine_of(live, "r1", keys=(1, 2))
            live.pool.observe(FirstToken("r1"))
            assert held_blocks(live, "a", (1, 2)) == 2
            before = live.pool.seed("")
            live.publish(snapshot([entry], version=2, key_source="approximate", served_model="other"))
            key = ApiKeyEntry(key_id="k", sha256="ab" * 32, tenant_id="t")
            await until(lambda: live.gateway.service_for(key, "other"))
            assert live.gateway.service_for(key, "m") is None
            assert live.pool.seed("") != before
            assert held_blocks(live, "a", (1, 2)) == 0


async def test_a_malformed_event_endpoint_blinds_only_its_engine(tmp_path: Path) -> None:
    async with fake_engine() as one:
        entries = [
            engine_entry("a", one.url, kv_events_endpoint="ipc:///run/other"),
            engine_entry("b", one.url, kv_events_endpoint="tcp://not an address"),
            engine_entry("c", one.url),
        ]
        async with live_gateway(tmp_path, snapshot(entries)) as live:
            assert len({await engine_of(live, f"r{number}") for number in range(6)}) == 3
            await until(lambda: {engine.index_trust for engine in live.sample().engines} == {"blind"})


async def test_ejections_are_limited_if_many_engines_appear_faulty(tmp_path: Path) -> None:
    async with fake_engine() as one:
        entries = [engine_entry(name, one.url) for name in "abcd"]
        async with live_gateway(tmp_path, snapshot(entries)) as live:
            for name in "abc":
                for _ in range(5):
                    live.engine(name).breaker.record_failure("http_5xx", time.monotonic())
            served = {await engine_of(live, f"r{number}") for number in range(8)}
            assert served == {"b", "c", "d"}


def stored(tokens: list[int], ts: float = 0.0, extra: list[object] | None = None) -> bytes:
    hashes: list[int | bytes] = [hash(tuple(tokens[: end + 2])) & 0xFFFF for end in range(0, len(tokens), 2)]
    return encode_batch(EventBatch(ts, [BlockStored(hashes, None, tokens, 2, extra_keys=extra)]))


async def test_pending_tokens_reported_by_an_engine_reach_the_router(tmp_path: Path) -> None:
    async with fake_engine() as one, live_gateway(tmp_path, snapshot([engine_entry("a", one.url)])) as live:
        pool = live.pool
        assert pool.router.loads(time.monotonic())[0].stepped_down
        reading = {"engine_id": "a", "at": time.time(), "reachable": True, "healthy": True, "reason": ""}
        pool.take_report(EngineReport(**reading, running=4))
        assert pool.router.loads(time.monotonic())[0].stepped_down
        pool.take_report(EngineReport(**(reading | {"at": time.time() - 5.0}), waiting=2))
        assert pool.router.loads(time.monotonic())[0].stepped_down, "too old to say how loaded the engine is"
        pool.take_report(EngineReport(**reading, running=4, waiting=2, kv_usage=0.5, kv_tokens=10_000))
        assert not pool.router.loads(time.monotonic())[0].stepped_down
        assert EngineReport(**reading, kv_usage=0.75, kv_tokens=10_000).room_tokens == 2500


async def test_engines_can_change_roles_while_requests_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with fake_engine() as one, fake_engine() as two, live_gateway(tmp_path) as live:
        urls = {"a": one.url, "b": two.url}

        async def roles(version: int, **of: str) -> None:
            entries = [engine_entry(name, urls[name], role=role) for name, role in of.items()]
            live.publish(snapshot(entries, version=version))
            await until(lambda: live.gateway.snapshot is not None and live.gateway.snapshot.version == version)
            await until(lambda: all(live.engine(name).breaker.accepts for name in of))

        await roles(1, a="mixed", b="mixed")
        before = await live.pool.decide(request("before"), hold=True)
        await roles(2, a="prefill", b="decode")
        paired = await live.pool.decide(request("paired"), hold=True)
        assert isinstance(paired, Dispatched)
        assert paired.decision.pair is not None
        assert (paired.decision.engine_id, paired.decision.pair.engine_id) == ("a", "b")
        await until(
            lambda: (
                {engine.engine_id: engine.role for engine in live.sample().engines} == {"a": "prefill", "b": "decode"}
            )
        )
        await until(lambda: live.shown("b").running >= 1)
        await roles(3, a="prefill", b="prefill")
        assert "roles_unmatched" in caplog.text
        await roles(4, a="mixed", b="mixed")
        after = await live.pool.decide(request("after"), hold=True)
        assert isinstance(after, Dispatched)
        assert after.decision.pair is None
        assert isinstance(before, Dispatched)
        for name in ("before", "paired", "after"):
            live.pool.observe(Completed(name))
        live.pool.router.check()
        pairs = live.pool.router.pairs
        assert pairs is not None
        assert len(live.pool.router.reservations) + len(pairs.legs) == 0
