"""What each door writes to the journal, and how budgets reject."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from gateway.bus.bus import InProcessBus
from gateway.contracts.snapshot import BudgetEntry, PriceEntry, Snapshot, encode_snapshot
from gateway.gateway import SNAPSHOT_TOPIC
from gateway.usage import usage_ledger
from gateway.usage.usage_messages import (
    ENTRIES_TOPIC,
    STATE_TOPIC,
    BudgetState,
    UsageBatch,
    UsageEntry,
    UsageState,
    decode_batch,
    encode_state,
    window_end,
    window_start,
)
from tests.gateway.named_services import ASKED, KEY_VARIABLE, PROVIDERS_KEY, named, provider_of, serving
from tests.gateway.peers.regions.three_regions import three_regions
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import BODY, CHAT, STREAM, ServedGateway, served, snapshot
from tests.patience import until

HARD_BUDGET = BudgetEntry(
    budget_id="acme-daily", tenant_id="tenant-a", unit="tokens", amount=1000, window="day", mode="hard"
)


class ControlPlane:
    """Collects entries, and publishes states as the control plane does."""

    def __init__(self, bus: InProcessBus) -> None:
        self.bus = bus
        self.batches: list[UsageBatch] = []
        self.version = 0
        bus.subscribe(ENTRIES_TOPIC, lambda _topic, value: self.batches.append(decode_batch(value)))

    def entries(self, outcome: str = "") -> list[UsageEntry]:
        """Return each delivered entry once."""
        by_number = {entry.number: entry for batch in self.batches for entry in batch.entries}
        return [entry for _, entry in sorted(by_number.items()) if entry.outcome == outcome or not outcome]

    def publish(self, journal: str, grant: int, *, spent: int = 0, mark: int = 0, others: int = 0) -> None:
        """Grant the journal a part of every budget."""
        self.version += 1
        grants = {journal: grant, **{f"other-{number}": 0 for number in range(others)}}
        start = window_start("day", usage_ledger.time.time_ns() // 1_000_000)
        budget_state = BudgetState(start, spent, grants, grants)
        state = UsageState(self.version, {journal: mark}, {HARD_BUDGET.budget_id: budget_state})
        self.bus.publish(STATE_TOPIC, encode_state(state))


@asynccontextmanager
async def running(shot: Snapshot, state_dir: Path) -> AsyncIterator[tuple[ServedGateway, ControlPlane]]:
    bus = InProcessBus()
    bus.publish(SNAPSHOT_TOPIC, encode_snapshot(shot))
    plane = ControlPlane(bus)
    async with served([], state_dir, bus=bus) as gateway:
        yield gateway, plane


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.gateway.SHIP_S", 0.01)


async def test_each_door_writes_the_engines_usage_once(engine: ScriptedEngine, tmp_path: Path) -> None:
    prices = (PriceEntry(model="tiny", prompt=1.0, cached=0.5, output=10.0),)
    async with running(replace(snapshot([engine.url]), prices=prices), tmp_path) as (gateway, plane):
        status, answer, _ = await gateway.post(CHAT, BODY)
        assert status == 200
        await gateway.stream(STREAM)
        decision = await gateway.decided()
        tokens = {"prompt_tokens": 70, "cached_tokens": 30, "output_tokens": 5}
        for _ in range(2):
            await gateway.report(decision, "complete", tokens)
        await until(lambda: len(plane.entries()) == 3)
    usage = answer["usage"]
    whole, streamed, reported = plane.entries("completed")
    assert (whole.prompt, whole.cached, whole.output) == (
        usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"], usage["completion_tokens"]
    )  # fmt: skip
    assert (streamed.prompt, streamed.output) == (whole.prompt, whole.output)
    assert (reported.prompt, reported.cached, reported.output) == (70, 30, 5)
    assert reported.charge == 40 * 1000 + 30 * 500 + 5 * 10_000
    assert {(entry.tenant_id, entry.key_id, entry.pool_id, entry.model) for entry in plane.entries()} == {
        ("tenant-a", "ka", "pool", "tiny")
    }


async def test_failures_and_clients_that_leave_are_counted_apart(engine: ScriptedEngine, tmp_path: Path) -> None:
    async with running(snapshot([engine.url]), tmp_path) as (gateway, plane):
        engine.die_after_chunks = 1
        await gateway.stream(STREAM)
        engine.die_after_chunks, engine.start_s = None, 30.0
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(gateway.post(CHAT, BODY), 0.3)
        await until(lambda: len(plane.entries()) == 2)
    assert [(entry.outcome, entry.requests, entry.prompt) for entry in plane.entries()] == [
        ("failed", 1, 0),
        ("cancelled", 1, 0),
    ]


async def test_a_providers_answer_costs_its_price(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, PROVIDERS_KEY)
    async with ScriptedEngine() as provider:
        plane = ControlPlane(InProcessBus())
        async with serving(named([], provider_of(provider)), tmp_path) as gateway:
            plane = ControlPlane(gateway.gateway._bus)  # type: ignore[arg-type]
            status, _, _ = await gateway.post(CHAT, ASKED)
            assert status == 200
            await until(plane.entries)
    (entry,) = plane.entries()
    assert (entry.outcome, entry.pool_id, entry.model) == ("completed", "", "external-1")
    assert entry.charge == round((entry.prompt * 2.0 + entry.output * 6.0) * 1000)


async def test_a_used_up_hard_budget_admits_nothing_and_names_itself(engine: ScriptedEngine, tmp_path: Path) -> None:
    async with running(replace(snapshot([engine.url]), budgets=(HARD_BUDGET,)), tmp_path) as (gateway, plane):
        journal = gateway.gateway.usage.journal.name
        plane.publish(journal, 120)
        await until(lambda: gateway.gateway.usage.budgets.version == 1)
        statuses = []
        for _ in range(6):
            status, answer, headers = await gateway.post(CHAT, BODY)
            statuses.append(status)
        admitted = statuses.count(200)
        assert statuses == [200] * admitted + [429] * (6 - admitted)
        spent = sum(entry.prompt + entry.output for entry in plane.entries("completed"))
        await until(lambda: len(plane.entries()) == 6)
        assert spent >= 120 > spent - spent // admitted
        # The rest of the budget is at other gateways.
        assert (answer["error"]["code"], headers["retry-after"]) == ("budget_exceeded", "1")
        plane.publish(journal, 0, spent=1100, mark=plane.entries()[-1].number)
        await until(lambda: gateway.gateway.usage.budgets.version == 2)
        status, answer, headers = await gateway.post("/api/v1/route", {"model": "tiny", "block_hashes": [1]})
        assert status == 429
        assert "acme-daily allows 1,000 tokens per day, which is used up" in answer["error"]["message"]
        assert int(headers["retry-after"]) > 1 or "23:59" in answer["error"]["message"]
        await until(lambda: len(plane.entries("over_budget")) == 7 - admitted)
        assert {entry.budget for entry in plane.entries("over_budget")} == {"acme-daily"}
        text = await gateway.metrics()
        assert 'headway_budget_rejections_total{budget="acme-daily",mode="hard"}' in text


async def test_a_shadow_budget_counts_and_rejects_nothing(engine: ScriptedEngine, tmp_path: Path) -> None:
    shadow = replace(HARD_BUDGET, mode="shadow")
    async with running(replace(snapshot([engine.url]), budgets=(shadow,)), tmp_path) as (gateway, plane):
        plane.publish(gateway.gateway.usage.journal.name, 0, spent=2000)
        await until(lambda: gateway.gateway.usage.budgets.version == 1)
        status, _, _ = await gateway.post(CHAT, BODY)
        await until(lambda: len(plane.entries()) == 2)
    assert status == 200
    assert [(entry.outcome, entry.requests, entry.budget) for entry in plane.entries()] == [
        ("would_reject", 0, "acme-daily"),
        ("completed", 1, ""),
    ]


async def test_a_restarted_gateway_still_knows_what_it_spent(engine: ScriptedEngine, tmp_path: Path) -> None:
    shot = replace(snapshot([engine.url]), budgets=(HARD_BUDGET,))
    async with running(shot, tmp_path) as (gateway, plane):
        plane.publish(gateway.gateway.usage.journal.name, 50)
        await until(lambda: gateway.gateway.usage.budgets.version == 1)
        assert (await gateway.post(CHAT, BODY))[0] == 200
        await until(lambda: gateway.gateway.usage._unsaved is None)
        await until((tmp_path / "usage" / "state").exists)
    # The new process gets no state from the bus.
    async with running(shot, tmp_path) as (gateway, _):
        assert (await gateway.post(CHAT, BODY))[0] == 429


async def test_a_report_after_a_restart_still_counts(engine: ScriptedEngine, tmp_path: Path) -> None:
    async with running(snapshot([engine.url]), tmp_path) as (gateway, _):
        decision = await gateway.decided()
        gateway.gateway.usage.journal.close()
        gateway.gateway.usage._journal = None
    async with running(snapshot([engine.url]), tmp_path) as (gateway, plane):
        report = {"prompt_tokens": 9, "output_tokens": 4}
        status, answer, _ = await gateway.report(decision, "complete", report)
        assert (status, answer["outcome"]) == (200, "completed")
        assert (await gateway.report(decision, "complete", report))[0] == 404
        await until(lambda: len(plane.entries()) == 1)
    (entry,) = plane.entries()
    assert (entry.prompt, entry.output, entry.requests, entry.key_id) == (9, 4, 1, "ka")


async def test_entries_are_sent_again_until_they_are_confirmed(
    engine: ScriptedEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage_ledger, "RESEND_S", 0.0)
    async with running(snapshot([engine.url]), tmp_path) as (gateway, plane):
        await gateway.post(CHAT, BODY)
        await until(lambda: sum(len(batch.entries) for batch in plane.batches) > 2)
        assert len(plane.entries()) == 1
        journal = gateway.gateway.usage.journal
        plane.publish(journal.name, 0, mark=plane.entries()[0].number)
        await until(lambda: journal.waiting == 0)
        await gateway.gateway.usage.tick()
        sent = len(plane.batches)
        await gateway.gateway.usage.tick()
        assert len(plane.batches) == sent


async def test_a_forwarded_request_counts_once_where_it_was_served(tmp_path: Path) -> None:
    async with three_regions(tmp_path) as regions:
        planes = {name: ControlPlane(bus) for name, bus in regions.buses.items()}
        regions.engines["us"].pause_s = 0.5
        answers = await asyncio.gather(*(regions.chat("us", f"question {number}") for number in range(6)))
        assert [status for status, _, _ in answers] == [200] * 6
        served_by = {name: len(engine.bodies) for name, engine in regions.engines.items()}
        for gateway in regions.gateways.values():
            await gateway.gateway.usage.tick()
        completed = {
            name: len({entry.number for plane in planes.values() for entry in plane.entries("completed")
                       if entry.pool_id == name})
            for name in planes
        }  # fmt: skip
        assert sum(completed.values()) == 6 > completed["us"]
        assert completed == served_by
        assert {entry.key_id for plane in planes.values() for entry in plane.entries()} == {"ka"}


@pytest.mark.parametrize(
    ("window", "start", "end"),
    [
        ("minute", 1_772_150_400_000, 1_772_150_460_000),
        ("day", 1_772_150_400_000, 1_772_236_800_000),
        ("month", 1_769_904_000_000, 1_772_323_200_000),
    ],
)
def test_windows_are_utc(window: str, start: int, end: int) -> None:
    # 27 February 2026, 00:00:30 UTC.
    assert window_start(window, 1_772_150_430_000) == start
    assert window_end(window, start) == end
