"""A draft policy that decides next to the live policy: counted, timed, reported, and without effect on requests."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from gateway.contracts.shadow_tally import (
    GAIN_EDGES_S,
    KEPT_SAMPLES,
    TOPIC,
    ShadowReport,
    ShadowTally,
    added_up,
    decode_shadow_report,
    encode_shadow_report,
)
from gateway.contracts.snapshot import ShadowEntry
from gateway.contracts.wire import UnreadableMessageError
from gateway.pools.pool.pool_shadow import PoolShadow
from gateway.reports.shadow_reports import report_shadows
from routing.policy.policy_document import RoutingPolicy, Stage
from routing.trials.shadow import ShadowComparison, ShadowPolicy
from routing.values.decision import Candidate
from tests.gateway.live_gateway import engine_entry, live_gateway, pool_entry, snapshot
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import MODEL, ServedGateway, served

LIVE = RoutingPolicy(placement=Stage(name="consistent_hash", params={"key_blocks": 1, "load_bound": 1000}))
DRAFT = RoutingPolicy(placement=Stage(name="round_robin"))


def shadow(**fields: Any) -> ShadowEntry:
    known: dict[str, Any] = {"run_id": "run", "policy": DRAFT, "base_version": 0, "until": time.time() + 60}
    return ShadowEntry(**{**known, **fields})


async def ask(gateway: ServedGateway, number: int) -> str:
    status, answer, _ = await gateway.post("/api/v1/route", {"model": MODEL, "block_hashes": [1, 2, number]})
    assert status == 200
    return str(answer["decision_id"])


async def test_requests_are_compared_and_reported(tmp_path: Path) -> None:
    async with (
        ScriptedEngine() as one,
        ScriptedEngine() as two,
        served([one.url, two.url], tmp_path, policy=LIVE, shadow=shadow()) as gateway,
    ):
        received: list[bytes] = []
        gateway.gateway._bus.subscribe(TOPIC, lambda _, value: received.append(value))
        asked = [await ask(gateway, number) for number in range(6)]
        for _ in range(2):
            report_shadows(gateway.gateway._bus, gateway.gateway.pools.values())
        (report,) = map(decode_shadow_report, received)
        tally = report.tally
        assert (report.pool_id, report.run_id, report.failed) == ("pool", "run", "")
        assert (tally.compared, tally.agreed) == (6, 3)
        assert sum(tally.gains) == 3 == len(tally.sample)
        assert {item.decision_id for item in tally.sample} < set(asked)
        assert sorted(engine.live_requests for engine in tally.engines.values()) == [0, 6]
        assert [engine.shadow_requests for engine in tally.engines.values()] == [3, 3]
        assert 0 < tally.cpu_max_s <= tally.cpu_s <= 7 * tally.cpu_max_s
        assert tally.learning_cpu_s < 1
        text = await gateway.metrics()
        assert 'headway_shadow_decisions_total{agreed="no",pool="pool"} 3.0' in text


async def test_an_error_ends_the_shadow_but_not_the_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(*_: object) -> None:
        raise ZeroDivisionError("planted")

    async with ScriptedEngine() as engine, served([engine.url], tmp_path, policy=LIVE, shadow=shadow()) as gateway:
        await ask(gateway, 1)
        monkeypatch.setattr(ShadowPolicy, "compare", explode)
        await ask(gateway, 2)
        monkeypatch.undo()
        await ask(gateway, 3)
        (report,) = gateway.pool.shadow.take_reports(time.time())
        assert report.failed == "The draft's rule failed with ZeroDivisionError after 1 comparisons."
        assert report.tally.compared == 1
        assert gateway.pool.shadow.take_reports(time.time()) == []
        assert gateway.pool.router._dispatcher.observer is None


async def test_an_invalid_draft_is_reported_and_disturbs_no_request(tmp_path: Path) -> None:
    unknown = shadow(policy=RoutingPolicy(placement=Stage(name="of_tomorrow")))
    async with ScriptedEngine() as engine, served([engine.url], tmp_path, shadow=unknown) as gateway:
        await ask(gateway, 1)
        (report,) = gateway.pool.shadow.take_reports(time.time())
        assert "of_tomorrow" in report.failed


async def test_a_shadow_starts_and_ends_with_the_snapshot(tmp_path: Path) -> None:
    engines = [engine_entry("a", "http://127.0.0.1:9")]
    async with live_gateway(tmp_path, snapshot(engines, shadow=shadow())) as live:
        first = live.pool.shadow.running
        assert first is not None
        follow = live.pool.shadow.follow
        follow(pool_entry(shadow=first.entry), time.time())
        assert live.pool.shadow.running is first
        follow(pool_entry(shadow=shadow(run_id="other")), time.time())
        assert live.pool.shadow.running is not first
        follow(pool_entry(shadow=shadow(base_version=7)), time.time())
        assert live.pool.shadow.running is None
        follow(pool_entry(shadow=shadow(until=time.time() - 1)), time.time())
        assert live.pool.shadow.running is None
        assert [take_report.run_id for take_report in live.pool.shadow.take_reports(time.time())] == ["run", "other"]


async def test_the_rate_and_time_of_a_shadow_are_limited(tmp_path: Path) -> None:
    entry = shadow(max_per_s=2.0, until=time.time() + 30)
    async with ScriptedEngine() as engine, served([engine.url], tmp_path, policy=LIVE, shadow=entry) as gateway:
        for number in range(10):
            await ask(gateway, number)
        pool: PoolShadow = gateway.pool.shadow
        (report,) = pool.take_reports(time.time())
        assert report.tally.left_out >= 6
        assert report.tally.compared + report.tally.left_out == 10
        (last,) = (pool.take_reports(entry.until + 1), pool.take_reports(entry.until + 1))[:1]
        assert last == []
        await ask(gateway, 11)
        assert pool.take_reports(entry.until + 2) == []


def compared(number: int, gain_s: float) -> ShadowComparison:
    live, draft = Candidate("a", 100, 1.0, 1.0, 5.0), Candidate("b", 60, 0.5, 0.5, 5.0 - gain_s)
    return ShadowComparison(f"r{number}", 1000, live, "least_cost", draft, "random")


def test_tallies_of_gateways_add_up() -> None:
    rng, tallies = Random(1), [ShadowTally(), ShadowTally()]
    for number in range(60):
        tallies[number % 2].note(compared(number, -0.003 if number % 3 else 0.3), 1.0, rng)
    total = added_up(tallies)
    assert total.compared == 60
    assert total.agreed == 0
    assert total.gain_s == pytest.approx(20 * 0.3 - 40 * 0.003)
    assert total.gain_hit_tokens == -40 * 60
    assert total.gains[GAIN_EDGES_S.index(0.2) + 1] == 20
    assert total.gains[GAIN_EDGES_S.index(-0.005) + 1] == 40
    assert total.engines["a"].live_tokens == 900 * 60
    assert total.engines["b"].shadow_tokens == 940 * 60
    assert len(total.sample) == 2 * KEPT_SAMPLES
    assert added_up([]) == ShadowTally()


def test_the_sample_is_spread_over_the_whole_run() -> None:
    tally, rng = ShadowTally(), Random(3)
    for number in range(2400):
        tally.note(compared(number, 0.1), 1.0, rng)
    numbers = sorted(int(item.decision_id[1:]) for item in tally.sample)
    assert len(numbers) == KEPT_SAMPLES
    assert numbers[0] < 600
    assert numbers[-1] > 1800


def report(**fields: Any) -> ShadowReport:
    tally = ShadowTally()
    tally.note(compared(1, 0.1), 1.0, Random(1))
    for name in [field for field in fields if field in tally.__struct_fields__]:
        setattr(tally, name, fields.pop(name))
    return ShadowReport(**{"pool_id": "pool", "run_id": "run", "part": "p", "at": 1.0, "tally": tally, **fields})


@pytest.mark.parametrize(
    "fields",
    [
        {"part": ""},
        {"run_id": "x" * 200},
        {"gain_s": float("nan")},
        {"cpu_s": float("inf")},
        {"compared": 5},
        {"agreed": -1},
        {"gains": [1]},
        {"at": float("nan")},
    ],
)
def test_impossible_reports_are_rejected(fields: dict[str, Any]) -> None:
    assert decode_shadow_report(encode_shadow_report(report())) == report()
    with pytest.raises(UnreadableMessageError):
        decode_shadow_report(msgspec.msgpack.encode(report(**fields)))
    with pytest.raises(UnreadableMessageError):
        decode_shadow_report(b"\xc1garbage")
