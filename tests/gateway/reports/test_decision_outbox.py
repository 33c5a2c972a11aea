"""From a request's end to the batch on the bus."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.base.metrics import GatewayMetrics
from gateway.base.settings import GatewaySettings
from gateway.contracts.stored_decision import (
    MAX_BATCH,
    TOPIC,
    UNANSWERED,
    DecisionBatch,
    StoredDecision,
    decode_batch,
    encode_batch,
    session_digest,
)
from gateway.contracts.wire import UnreadableMessageError
from gateway.reports.decision_outbox import DecisionOutbox
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import MODEL, SECRET, ServedGateway, served

SLOW = GatewaySettings(probe_interval_s=0.1, decision_interval_s=60.0)
"""Nothing is sent unless a test says so."""


class Listener:
    """Hears what a gateway sends."""

    def __init__(self, gateway: ServedGateway) -> None:
        self._gateway = gateway.gateway
        self.batches: list[DecisionBatch] = []
        gateway.gateway._bus.subscribe(TOPIC, lambda _topic, value: self.batches.append(decode_batch(value)))

    async def sent(self) -> list[StoredDecision]:
        """Return what is sent now."""
        self.batches.clear()
        await self._gateway.decisions.flush()
        return [decision for batch in self.batches for decision in batch.decisions]


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[ServedGateway]:
    async with (
        ScriptedEngine() as engine,
        ScriptedEngine() as other,
        served([engine.url, other.url], tmp_path, gateway_settings=SLOW) as gateway,
    ):
        yield gateway


@pytest.fixture
def listener(gateway: ServedGateway) -> Listener:
    return Listener(gateway)


async def decided(gateway: ServedGateway, **more: Any) -> str:
    question = {"model": MODEL, "block_hashes": [1, 2, 3, 4], "wait": False, **more}
    status, answer, _ = await gateway.post("/api/v1/route", question)
    assert status == 200
    return str(answer["decision_id"])


async def test_a_request_is_sent_once_with_its_course(gateway: ServedGateway, listener: Listener) -> None:
    decision_id = await decided(gateway, session_id="private words")
    assert await listener.sent() == []
    await gateway.post(f"/api/v1/requests/{decision_id}/first_token", {})
    await gateway.post(
        f"/api/v1/requests/{decision_id}/complete", {"cached_tokens": 32, "output_tokens": 9, "prompt_tokens": 70}
    )
    (stored,) = await listener.sent()
    assert (stored.decision.decision_id, stored.outcome, stored.late, stored.share) == (
        decision_id, "completed", False, 1.0,
    )  # fmt: skip
    assert (stored.cached_tokens, stored.output_tokens, stored.engine_prompt_tokens) == (32, 9, 70)
    assert stored.session == session_digest(SECRET, "private words")
    assert 0 <= (stored.first_token_after_s or -1) <= (stored.finished_after_s or -1)
    assert [each.engine_id for each in stored.known] == [each.engine_id for each in stored.decision.candidates]
    assert stored.known[0].name in ("e0", "e1")
    assert stored.engines == 2
    assert await listener.sent() == []


async def test_no_name_of_a_session_leaves_the_process(gateway: ServedGateway) -> None:
    heard: list[bytes] = []
    gateway.gateway._bus.subscribe(TOPIC, lambda _topic, value: heard.append(value))
    decision_id = await decided(gateway, session_id="canary-of-a-session")
    await gateway.post(f"/api/v1/requests/{decision_id}/fail", {})
    await gateway.gateway.decisions.flush()
    assert len(heard) == 1
    assert b"canary-of-a-session" not in heard[0]


async def test_a_request_without_an_end_is_sent_when_its_reservation_is_over(
    gateway: ServedGateway, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    decision_id = await decided(gateway)
    assert await listener.sent() == []
    record = gateway.app.recent.get(decision_id)
    assert record is not None
    record.arrived_s -= record.pool.entry.policy.reservation_ttl_s
    (stored,) = await listener.sent()
    assert (stored.decision.decision_id, stored.outcome, stored.late) == (decision_id, UNANSWERED, False)
    await gateway.post(f"/api/v1/requests/{decision_id}/complete", {})
    assert await listener.sent() == []


async def test_beyond_the_rate_a_share_is_kept_and_every_failure(gateway: ServedGateway, listener: Listener) -> None:
    outbox = gateway.gateway.decisions
    names = [await decided(gateway) for _ in range(24)]
    for number, name in enumerate(names):
        await gateway.post(f"/api/v1/requests/{name}/{'fail' if number % 4 == 0 else 'complete'}", {})
    outbox._kept_per_s, outbox._room = 0.0, 6.0
    stored = await listener.sent()
    failed = [each for each in stored if each.outcome == "failed"]
    kept = [each for each in stored if each.outcome == "completed"]
    assert (len(failed), len(kept)) == (6, 6)
    assert {each.share for each in failed} == {1.0}
    assert sum(1 / each.share for each in kept) == pytest.approx(18)
    records = gateway.gateway.metrics.decision_records
    assert (records.value("kept"), records.value("left_out")) == (12, 12)


async def test_a_refused_request_is_kept_as_late(tmp_path: Path) -> None:
    async with served(["http://127.0.0.1:9"], tmp_path, gateway_settings=SLOW) as gateway:
        listener = Listener(gateway)
        status, _, _ = await gateway.post("/api/v1/route", {"model": MODEL, "block_hashes": [1], "wait": False})
        (stored,) = await listener.sent()
    assert status == 503
    assert (stored.outcome, stored.error, stored.late, stored.regret) == ("refused", "no_engine", True, None)


async def test_what_ended_last_is_sent_when_the_gateway_stops(tmp_path: Path) -> None:
    heard: list[bytes] = []
    async with ScriptedEngine() as engine, served([engine.url], tmp_path, gateway_settings=SLOW) as gateway:
        gateway.gateway._bus.subscribe(TOPIC, lambda _topic, value: heard.append(value))
        await gateway.post(f"/api/v1/requests/{await decided(gateway)}/complete", {})
    assert len(heard) == 1


def test_more_than_can_wait_is_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.reports.decision_outbox.MAX_PENDING", 2)
    metrics = GatewayMetrics()
    outbox = DecisionOutbox(
        None,
        list,
        lambda: None,
        metrics.decision_records,
        SECRET,
        kept_per_s=1,
        interval_s=1,  # type: ignore[arg-type]
    )
    for _ in range(5):
        outbox.ended(None)  # type: ignore[arg-type]
    assert metrics.decision_records.value("dropped") == 3


@pytest.mark.parametrize("data", [b"", b"\x93\x01\x02", b"\xc1", encode_batch(DecisionBatch("g", ()))[:-1]])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(UnreadableMessageError):
        decode_batch(data)


async def test_a_batch_over_the_limit_is_refused(gateway: ServedGateway, listener: Listener) -> None:
    await gateway.post(f"/api/v1/requests/{await decided(gateway)}/complete", {})
    (stored,) = await listener.sent()
    with pytest.raises(UnreadableMessageError):
        decode_batch(encode_batch(DecisionBatch("g", (stored,) * (MAX_BATCH + 1))))
