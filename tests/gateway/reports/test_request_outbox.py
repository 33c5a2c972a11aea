"""From a request's end to the batch on the bus."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from gateway.base.settings import GatewaySettings
from gateway.contracts.request_batch import (
    MAX_BYTES,
    MAX_DECISIONS,
    MAX_ROWS,
    TOPIC,
    RequestBatch,
    decode_batch,
    decode_decisions,
    decode_rows,
    encode_batch,
    request_batch,
)
from gateway.contracts.stored_decision import DIGESTS, UNANSWERED, StoredDecision, session_digest
from gateway.contracts.traffic_row import HEAD_BLOCKS, TrafficRow, trace_blocks, trace_head
from gateway.contracts.wire import UnreadableMessageError
from tests.gateway.ended_requests import BLANK
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import KEYRING, MODEL, ServedGateway, served
from tests.patience import until

SLOW = GatewaySettings(probe_interval_s=0.1, request_interval_s=60.0)
"""Nothing is sent unless a test does so."""


class Listener:
    """Receives a gateway's messages."""

    def __init__(self, gateway: ServedGateway) -> None:
        self._gateway = gateway.gateway
        self.batches: list[RequestBatch] = []
        gateway.gateway._bus.subscribe(TOPIC, lambda _topic, value: self.batches.append(decode_batch(value)))

    async def sent(self, *, last: bool = False) -> list[StoredDecision]:
        """Return the decisions that are sent now."""
        self.batches.clear()
        await self._gateway.requests.flush(last=last)
        return [decision for batch in self.batches for decision in decode_decisions(batch.decisions)]

    async def rows(self, *, last: bool = False) -> list[TrafficRow]:
        """Return the traffic rows that are sent now."""
        await self.sent(last=last)
        return [row for batch in self.batches for row in decode_rows(batch.traffic)]


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


async def answer(gateway: ServedGateway, name: str) -> None:
    await gateway.post(f"/api/v1/requests/{name}/first_token", {})
    await gateway.post(f"/api/v1/requests/{name}/complete", {})


def split_requests(gateway: ServedGateway) -> int:
    """Return the number of requests whose TTFT parts are reported."""
    split, now = gateway.pool.ttft_split, time.monotonic()
    reported = [split.spans(engine_id, now) for engine_id in gateway.pool.engines]
    return sum(spans[0].requests for spans in reported if spans)


async def test_a_request_is_sent_once_with_its_timeline(gateway: ServedGateway, listener: Listener) -> None:
    decision_id = await gateway.decided(session_id="private words")
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
    assert stored.session == session_digest(KEYRING.used.derive(DIGESTS), "private words")
    assert 0 <= (stored.first_token_after_s or -1) <= (stored.finished_after_s or -1)
    assert [item.engine_id for item in stored.known] == [
        candidate.engine_id for candidate in stored.decision.candidates
    ]
    assert stored.known[0].name in ("e0", "e1")
    assert stored.engines == 2
    (batch,) = listener.batches
    (row,) = decode_rows(batch.traffic)
    assert (batch.requests, row.arrived_at, row.outcome) == (1, stored.arrived_at, "completed")
    assert await listener.sent() == []


async def test_no_text_and_no_name_leaves_the_process(gateway: ServedGateway) -> None:
    received: list[bytes] = []
    gateway.gateway._bus.subscribe(TOPIC, lambda _topic, value: received.append(value))
    messages = [{"role": "user", "content": "canary-of-a-prompt"}]
    await gateway.post("/v1/chat/completions", {"model": MODEL, "messages": messages, "session_id": "canary-name"})
    decision_id = await gateway.decided(session_id="canary-of-a-session")
    await gateway.post(f"/api/v1/requests/{decision_id}/fail", {})
    await gateway.gateway.requests.flush(last=True)
    assert len(received) == 1
    assert b"canary" not in received[0]


async def test_a_request_without_an_end_is_sent_when_its_reservation_expires(
    gateway: ServedGateway, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    decision_id = await gateway.decided()
    assert await listener.sent() == []
    record = gateway.app.recent.get(decision_id)
    assert record is not None
    record.arrived_s -= record.pool.entry.policy.reservation_ttl_s
    (stored,) = await listener.sent()
    assert (stored.decision.decision_id, stored.outcome, stored.late) == (decision_id, UNANSWERED, False)
    await gateway.post(f"/api/v1/requests/{decision_id}/complete", {})
    assert await listener.sent() == []


async def test_beyond_the_rate_limit_a_sample_and_every_failure_is_kept(
    gateway: ServedGateway, listener: Listener
) -> None:
    outbox = gateway.gateway.requests
    names = [await gateway.decided() for _ in range(24)]
    for number, name in enumerate(names):
        await gateway.post(f"/api/v1/requests/{name}/{'fail' if number % 4 == 0 else 'complete'}", {})
    outbox._kept_per_s, outbox._room = 0.0, 6.0
    stored = await listener.sent()
    failed = [item for item in stored if item.outcome == "failed"]
    kept = [item for item in stored if item.outcome == "completed"]
    assert (len(failed), len(kept)) == (6, 6)
    assert {item.share for item in failed} == {1.0}
    assert sum(1 / item.share for item in kept) == pytest.approx(18)
    records = gateway.gateway.metrics.decision_records
    assert (records.value("kept"), records.value("left_out")) == (12, 12)


async def test_a_rejected_request_is_recorded_as_late(tmp_path: Path) -> None:
    async with served(["http://127.0.0.1:9"], tmp_path, gateway_settings=SLOW) as gateway:
        listener = Listener(gateway)
        status, _, _ = await gateway.post("/api/v1/route", {"model": MODEL, "block_hashes": [1], "wait": False})
        (stored,) = await listener.sent()
    assert status == 503
    assert (stored.outcome, stored.error, stored.late, stored.regret) == ("rejected", "no_engine", True, None)


async def test_the_last_ended_requests_are_sent_when_the_gateway_stops(tmp_path: Path) -> None:
    received: list[bytes] = []
    async with ScriptedEngine() as engine, served([engine.url], tmp_path, gateway_settings=SLOW) as gateway:
        gateway.gateway._bus.subscribe(TOPIC, lambda _topic, value: received.append(value))
        await gateway.post(f"/api/v1/requests/{await gateway.decided()}/complete", {})
    assert len(received) == 1


async def test_ended_requests_beyond_the_limit_are_counted(
    gateway: ServedGateway, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.reports.request_outbox.MAX_ENDED", 2)
    for _ in range(5):
        await gateway.post(f"/api/v1/requests/{await gateway.decided()}/complete", {})
    assert len(await listener.rows()) == 2
    metrics = gateway.gateway.metrics
    assert metrics.decision_records.value("dropped") == 3
    assert metrics.traffic_rows.value("dropped") == 3


async def test_the_shape_of_a_request_is_sent_with_its_outcome(gateway: ServedGateway, listener: Listener) -> None:
    decision_id = await gateway.decided(block_hashes=[1, 2, 3], session_id="a session", priority=2)
    await gateway.post(f"/api/v1/requests/{decision_id}/first_token", {})
    await gateway.post(f"/api/v1/requests/{decision_id}/complete", {"cached_tokens": 16, "output_tokens": 9})
    (row,) = await listener.rows()
    assert (row.outcome, row.output_tokens, row.cached_tokens, row.priority, row.engines) == ("completed", 9, 16, 2, 2)
    assert row.first_token_after_s is not None
    assert row.finished_after_s is not None
    assert row.blocks
    record = gateway.app.recent.get(decision_id)
    assert record is not None
    assert record.keys is None, "a long prompt has many keys, and the record stays in memory"


async def test_equal_prefixes_and_sessions_have_equal_pseudonyms(gateway: ServedGateway, listener: Listener) -> None:
    for hashes, session in (([1, 2], "one"), ([1, 3], "one"), ([4], "two")):
        await gateway.decided(block_hashes=hashes, session_id=session)
    one, other, third = await listener.rows(last=True)
    assert [row.outcome for row in (one, other, third)] == [UNANSWERED] * 3
    assert one.session == other.session != third.session
    assert one.tenant == third.tenant != ""
    assert third.blocks[0] not in one.blocks


async def test_open_requests_beyond_the_limit_send_no_traffic(
    gateway: ServedGateway, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.reports.request_outbox.MAX_OPEN", 2)
    names = [await gateway.decided() for _ in range(4)]
    assert await listener.rows() == []
    for name in names:
        await gateway.post(f"/api/v1/requests/{name}/complete", {})
    assert len(await listener.rows()) == 2
    assert sum(len(decode_decisions(batch.decisions)) for batch in listener.batches) == 4
    assert gateway.gateway.metrics.traffic_rows.value("dropped") == 2


async def test_of_many_requests_every_nth_reports_its_ttft_parts(
    gateway: ServedGateway, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.reports.request_outbox.MAX_SPLIT", 2)
    for _ in range(6):
        await answer(gateway, await gateway.decided())
    assert len(await listener.rows()) == 6
    assert split_requests(gateway) == 6
    assert sum(len(bins) for engine in gateway.pool.ttft_split._engines.values() for bins in (engine[-1].bins,)) <= 2


async def test_every_late_request_is_kept_and_represents_ttft_parts_in_proportion(
    gateway: ServedGateway, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.reports.request_outbox.MAX_SPLIT", 4)
    for number in range(12):
        name = await gateway.decided()
        record = gateway.app.recent.get(name)
        assert record is not None
        record.ttft_slo_s = 0.0 if number < 3 else 60.0
        await answer(gateway, name)
    outbox = gateway.gateway.requests
    outbox._kept_per_s = outbox._room = 0.0
    stored = await listener.sent()
    assert [(item.late, item.share) for item in stored] == [(True, 1.0)] * 3
    assert split_requests(gateway) == 12, "three late ones stand for three, not for six"


async def test_a_request_without_an_end_does_not_displace_later_ended_ones(
    gateway: ServedGateway, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.reports.request_outbox.MAX_OPEN", 2)
    await gateway.decided()
    for _ in range(3):
        name = await gateway.decided()
        assert await listener.rows() == []
        await gateway.post(f"/api/v1/requests/{name}/complete", {})
        assert len(await listener.rows()) == 1
    assert gateway.gateway.metrics.traffic_rows.value("dropped") == 0


async def test_no_traffic_is_sent_if_recording_is_off(gateway: ServedGateway, listener: Listener) -> None:
    gateway.gateway.requests._records_traffic = False
    await gateway.post(f"/api/v1/requests/{await gateway.decided()}/complete", {})
    assert await listener.rows() == []
    assert len(listener.batches) == 1


async def test_a_long_interval_is_sent_in_several_batches(
    gateway: ServedGateway, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.reports.request_outbox.MAX_ROWS", 2)
    monkeypatch.setattr("gateway.reports.request_outbox.MAX_DECISIONS", 3)
    for _ in range(5):
        await gateway.post(f"/api/v1/requests/{await gateway.decided()}/complete", {})
    assert len(await listener.rows()) == 5
    assert [batch.requests for batch in listener.batches] == [2, 2, 1]
    assert [len(decode_decisions(batch.decisions)) for batch in listener.batches] == [3, 2, 0]
    assert len({batch.name for batch in listener.batches}) == 3
    assert MAX_DECISIONS < MAX_ROWS


@pytest.mark.parametrize(
    ("keys", "prompt_tokens", "block_tokens", "expected"),
    [
        (range(1, 4), 1500, 512, (1, 2, 3)),
        (range(1, 3), 1500, 512, (1, 2)),
        (range(1, 5), 1024, 512, (1, 2)),
        (range(1, 63), 1000, 16, (32, 62)),
        (range(1, 33), 512, 16, (32,)),
        (range(1, 2), 20, 16, (1,)),
        (range(1, 3), 2048, 1024, (1, 1, 2, 2)),
        ((), 3000, 16, ()),
    ],
)
def test_keys_are_folded_into_blocks_of_512_tokens(
    keys: range, prompt_tokens: int, block_tokens: int, expected: tuple[int, ...]
) -> None:
    assert trace_blocks(list(keys), prompt_tokens, block_tokens) == expected


def test_small_blocks_are_named_at_the_beginning_of_a_prompt() -> None:
    assert trace_head(range(1, 100), 16) == tuple(range(1, HEAD_BLOCKS + 1))
    assert trace_head((1, 2), 16) == (1, 2)
    assert trace_head((1, 2), 512) == ()


@pytest.mark.parametrize(
    "data", [b"\x93\x01\x02", b"\xc1", bytes(MAX_BYTES + 1), encode_batch(request_batch("b", (), ()))[:-1]]
)
def test_malformed_bytes_are_rejected(data: bytes) -> None:
    for decode in (decode_batch, decode_rows, decode_decisions):
        with pytest.raises(UnreadableMessageError):
            decode(data)


def test_a_row_of_a_newer_version_is_read_without_its_new_fields() -> None:
    row = TrafficRow(**{**BLANK, "arrived_at": 1.0, "pool": "p", "prompt_tokens": 700, "blocks": (5,)})
    assert decode_rows(msgspec.msgpack.encode([[*msgspec.structs.astuple(row), "more"]])) == [row]


async def test_a_retried_request_names_its_tokenizer_its_failed_attempt_and_its_key(tmp_path: Path) -> None:
    async with (
        ScriptedEngine() as dying,
        ScriptedEngine() as other,
        served([dying.url, other.url], tmp_path, gateway_settings=SLOW) as gateway,
    ):
        listener = Listener(gateway)
        await until(lambda: len(gateway.pool.accepting) == 2)
        dying.die_before_first_byte = True
        dying.tokenizer_status = other.tokenizer_status = 500
        body = {"model": MODEL, "messages": [{"role": "user", "content": "hello " * 50}], "max_tokens": 1}
        for _ in range(4):
            assert (await gateway.post("/v1/chat/completions", body))[0] == 200
        sent = await listener.sent()
        assert all({wait.name for wait in stored.tokenizers} == {"e0", "e1"} for stored in sent)
        retried = next(stored for stored in sent if stored.failures)
        (failure,) = retried.failures
        assert (failure.name, failure.engine_id, retried.attempts) == ("e0", "engine-0", ("engine-0", "engine-1"))
        assert 0.0 <= failure.begun_after_s <= failure.ended_after_s <= retried.decided_after_s
        assert retried.key_id == "ka"
        faults = gateway.pool.progress.faults("engine-0")
        assert (faults.tokenizer_late, faults.unanswered, faults.broken) == (4, 4, 0)
