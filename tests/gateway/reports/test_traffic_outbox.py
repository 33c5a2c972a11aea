"""From a request's end to the row on the bus; never a prompt or a name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from gateway.base.settings import GatewaySettings
from gateway.contracts.stored_decision import UNANSWERED
from gateway.contracts.traffic_row import (
    HEAD_BLOCKS,
    MAX_BATCH,
    MAX_BATCH_BYTES,
    TOPIC,
    TrafficBatch,
    TrafficRow,
    decode_rows,
    encode_batch,
    rows_in,
    trace_blocks,
    trace_head,
)
from gateway.contracts.wire import UnreadableMessageError
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import MODEL, ServedGateway, served

SLOW = GatewaySettings(probe_interval_s=0.1, traffic_interval_s=60.0, decision_interval_s=60.0)
"""Nothing is sent unless a test says so."""


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[ServedGateway]:
    async with ScriptedEngine() as engine, served([engine.url], tmp_path, gateway_settings=SLOW) as gateway:
        yield gateway


@pytest.fixture
def heard(gateway: ServedGateway) -> list[bytes]:
    values: list[bytes] = []
    gateway.gateway._bus.subscribe(TOPIC, lambda _topic, value: values.append(value))
    return values


async def decided(gateway: ServedGateway, hashes: list[int], **more: object) -> str:
    status, answer, _ = await gateway.post(
        "/api/v1/route", {"model": MODEL, "block_hashes": hashes, "wait": False, **more}
    )
    assert status == 200
    return str(answer["decision_id"])


async def sent(gateway: ServedGateway, heard: list[bytes], *, last: bool = False) -> list[TrafficRow]:
    heard.clear()
    await gateway.gateway.traffic.flush(last=last)
    return [row for value in heard for row in decode_rows(value)]


async def test_a_request_is_sent_once_when_it_ended(gateway: ServedGateway, heard: list[bytes]) -> None:
    decision_id = await decided(gateway, [1, 2, 3], session_id="a session", priority=2)
    assert await sent(gateway, heard) == []
    await gateway.post(f"/api/v1/requests/{decision_id}/first_token", {})
    await gateway.post(f"/api/v1/requests/{decision_id}/complete", {"cached_tokens": 16, "output_tokens": 9})
    (row,) = await sent(gateway, heard)
    assert (row.outcome, row.output_tokens, row.cached_tokens, row.priority, row.engines) == ("completed", 9, 16, 2, 1)
    assert row.ttft_s is not None
    assert row.total_s is not None
    assert row.blocks
    assert await sent(gateway, heard) == []


async def test_equal_prefixes_and_sessions_have_equal_names(gateway: ServedGateway, heard: list[bytes]) -> None:
    for hashes, session in (([1, 2], "one"), ([1, 3], "one"), ([4], "two")):
        await decided(gateway, hashes, session_id=session)
    one, other, third = await sent(gateway, heard, last=True)
    assert [row.outcome for row in (one, other, third)] == [UNANSWERED] * 3
    assert one.session == other.session != third.session
    assert one.tenant == third.tenant != ""
    assert third.blocks[0] not in one.blocks


async def test_no_text_and_no_name_leaves_the_process(gateway: ServedGateway, heard: list[bytes]) -> None:
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "canary-of-a-prompt"}],
        "session_id": "canary-name",
    }
    await gateway.post("/v1/chat/completions", body)
    assert await sent(gateway, heard, last=True)
    for value in heard:
        assert b"canary" not in value


async def test_a_request_without_an_end_is_sent_when_its_reservation_is_over(
    gateway: ServedGateway, heard: list[bytes]
) -> None:
    decision_id = await decided(gateway, [1])
    record = gateway.app.recent.get(decision_id)
    assert record is not None
    record.arrived_s -= record.pool.entry.policy.reservation_ttl_s
    (row,) = await sent(gateway, heard)
    assert row.outcome == UNANSWERED


async def test_more_than_the_limit_is_counted_and_left_out(
    gateway: ServedGateway, heard: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.reports.traffic_outbox.MAX_OPEN", 2)
    for _ in range(4):
        await decided(gateway, [1])
    assert len(await sent(gateway, heard, last=True)) == 2


async def test_nothing_is_noted_where_recording_is_off(gateway: ServedGateway, heard: list[bytes]) -> None:
    outbox = gateway.gateway.traffic
    outbox._enabled = False
    await decided(gateway, [1])
    assert await sent(gateway, heard, last=True) == []


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
def test_keys_fold_into_blocks_of_512(
    keys: range, prompt_tokens: int, block_tokens: int, expected: tuple[int, ...]
) -> None:
    assert trace_blocks(list(keys), prompt_tokens, block_tokens) == expected


def test_small_blocks_are_named_at_the_beginning() -> None:
    assert trace_head(range(1, 100), 16) == tuple(range(1, HEAD_BLOCKS + 1))
    assert trace_head((1, 2), 16) == (1, 2)
    assert trace_head((1, 2), 512) == ()


def test_batches_are_bounded() -> None:
    rows = tuple(TrafficRow(1.0, "p", 1, 1, ()) for _ in range(MAX_BATCH + 1))
    assert rows_in(encode_batch(TrafficBatch("g", rows[1:]))) == MAX_BATCH
    with pytest.raises(UnreadableMessageError, match="more than"):
        rows_in(encode_batch(TrafficBatch("g", rows)))
    with pytest.raises(UnreadableMessageError, match="over the limit"):
        rows_in(bytes(MAX_BATCH_BYTES + 1))
    for data in (b"", b"\xff", b"\x00" * 10):
        with pytest.raises(UnreadableMessageError):
            rows_in(data)
        with pytest.raises(UnreadableMessageError):
            decode_rows(data)


def test_a_row_of_a_later_version_is_read_without_what_it_adds() -> None:
    row = TrafficRow(1.0, "p", 700, 3, (5,))
    data = msgspec.msgpack.encode({"gateway": "g", "rows": [[*msgspec.structs.astuple(row), "more"]]})
    assert decode_rows(data) == (row,)
