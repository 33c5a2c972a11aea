"""Request bodies on the synchronous fast path, and their lenient parsing on every path.

Idempotent requests: one name gets one response, and failures leave nothing behind.

Callers that never report a request's end do not make its engine appear busy, slow or sick.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.api import untracked_requests as unattended
from gateway.api.idempotent_requests import RepeatedRequests
from gateway.api.observe_request import read_observation
from gateway.api.route_request import prompt_of, read, read_at_once, read_flat
from gateway.api.untracked_requests import REPORTED_S, ReportingKeys, UntrackedRequests
from gateway.requests.formats.endpoints import BY_PATH, CHAT, COMPLETIONS, Endpoint
from gateway.requests.formats.prompt import TokenPrompt
from gateway.server.http.json_body import BadBodyError
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import MODEL, ServedGateway, served

FLAT = b'{"model": "m", "token_ids": [1, 2, 3], "wait": false}'
TEXT = b'{"model": "m", "prompt": "one two", "wait": false}'
CHAT_BODY = b'{"model": "m", "messages": [{"role": "user", "content": "one two"}]}'


@pytest.mark.parametrize("texts", [True, False])
def test_the_fast_path_reads_token_ids_with_and_without_tokenizers(texts: bool) -> None:
    asked = read_at_once(FLAT, None, waits=True, texts=texts)
    assert asked is not None
    assert asked.token_ids is not None


def test_the_fast_path_reads_texts_only_for_pools_without_a_tokenizer() -> None:
    assert read_at_once(TEXT, None, waits=True, texts=True) is not None
    assert read_at_once(CHAT_BODY, BY_PATH[CHAT], waits=False, texts=True) is not None
    # Decoded here they would be decoded once more on their way to the engine that tokenizes them.
    assert read_at_once(TEXT, None, waits=True, texts=False) is None
    assert read_at_once(CHAT_BODY, BY_PATH[CHAT], waits=False, texts=False) is None


def test_the_fast_path_declines_a_request_that_can_be_queued() -> None:
    assert read_at_once(CHAT_BODY, BY_PATH[CHAT], waits=True, texts=True) is None
    assert read_at_once(FLAT.replace(b"false", b"true"), None, waits=True, texts=True) is None


LOOSE = {"max_tokens": "16", "priority": 1.0, "add_generation_prompt": 1, "continue_final_message": "no"}
STRICT = {"max_tokens": 16, "priority": 1, "add_generation_prompt": True, "continue_final_message": False}


@pytest.mark.parametrize("endpoint", [None, BY_PATH[CHAT]])
async def test_lenient_json_reads_like_strict_json(endpoint: Endpoint | None) -> None:
    chat = {"model": "m", "messages": [{"role": "user", "content": "one two"}], "wait": False}
    asked = [await read(msgspec.json.encode({**chat, **fields}), endpoint) for fields in (LOOSE, STRICT)]
    assert [(item.max_tokens, item.priority) for item in asked] == [(16, 1)] * 2
    for item in (LOOSE, STRICT):
        at_once = read_at_once(msgspec.json.encode({**chat, **item}), endpoint, waits=True, texts=True)
        assert at_once is not None
        assert (at_once.max_tokens, at_once.priority) == (16, 1)


@pytest.mark.parametrize("field", [{"max_tokens": "many"}, {"max_tokens": 16.5}, {"priority": "first"}])
async def test_numbers_that_no_engine_accepts_are_rejected(field: dict[str, Any]) -> None:
    with pytest.raises(BadBodyError) as caught:
        await read(msgspec.json.encode({"model": "m", "prompt": "one two", **field}))
    assert caught.value.param == next(iter(field))


async def test_observations_are_parsed_as_leniently() -> None:
    request = {"model": "m", "prompt_tokens": "64", "max_tokens": 16.0}
    line = {"request": request, "engine": "e", "started_at": 1.0, "total_s": 1.0}
    observed = await read_observation(msgspec.json.encode(line))
    assert (observed.request.prompt_tokens, observed.request.max_tokens) == (64, 16)


@pytest.mark.parametrize("endpoint", [None, BY_PATH[COMPLETIONS]])
@pytest.mark.parametrize("fields", [{"truncate_prompt_tokens": 4}, {"prompt_embeds": "AAAA"}, {"echo": "true"}])
async def test_hits_are_not_compared_for_a_prompt_that_the_engine_changes(
    fields: dict[str, Any], endpoint: Endpoint | None
) -> None:
    asked = await read(msgspec.json.encode({"model": "m", "prompt": "one two", **fields}), endpoint)
    assert not asked.comparable
    plain = await read(msgspec.json.encode({"model": "m", "prompt": "one two", "echo": "false"}), endpoint)
    assert plain.comparable


async def test_the_fast_path_declines_token_ids_that_an_engine_truncates() -> None:
    body = FLAT.replace(b"}", b', "truncate_prompt_tokens": 2}')
    assert read_flat(body) is None
    asked = await read(body)
    assert prompt_of(asked) == TokenPrompt([1, 2, 3], keeps=2)
    assert not asked.comparable


class Maker:
    """Create a new number per call after a pause."""

    def __init__(self) -> None:
        self.made = 0
        self.fails = 0

    async def __call__(self) -> int:
        await asyncio.sleep(0.01)
        self.made += 1
        if self.made <= self.fails:
            raise ValueError
        return self.made


async def test_a_name_is_created_once_for_many_concurrent_callers() -> None:
    repeated: RepeatedRequests[int] = RepeatedRequests()
    make = Maker()
    assert await asyncio.gather(*(repeated.once(("key", "name"), make) for _ in range(5))) == [1] * 5
    assert await repeated.once(("key", "name"), make) == 1
    assert await repeated.once(("other key", "name"), make) == 2


async def test_a_failure_reaches_only_its_caller_and_the_next_retries() -> None:
    repeated: RepeatedRequests[int] = RepeatedRequests()
    make = Maker()
    make.fails = 1
    results = await asyncio.gather(*(repeated.once(("k", "n"), make) for _ in range(3)), return_exceptions=True)
    assert [type(result) for result in results] == [ValueError, int, int]
    assert len(repeated) == 1


async def test_a_cancelled_maker_hands_over_to_a_waiting_caller() -> None:
    repeated: RepeatedRequests[int] = RepeatedRequests()
    make = Maker()
    first = asyncio.create_task(repeated.once(("k", "n"), make))
    second = asyncio.create_task(repeated.once(("k", "n"), make))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    first.cancel()
    assert await second == 1
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_the_table_is_bounded_by_its_capacity() -> None:
    repeated: RepeatedRequests[int] = RepeatedRequests(capacity=2)
    make = Maker()
    for name in "abc":
        await repeated.once(("k", name), make)
    assert len(repeated) == 2
    assert await repeated.once(("k", "c"), make) == 3
    assert await repeated.once(("k", "a"), make) == 4


ROUTE = "/api/v1/route"
QUESTION = {"model": MODEL, "block_hashes": [1], "wait": False}
GRACE_S = 0.3


@pytest.fixture
async def gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ServedGateway]:
    monkeypatch.setattr(unattended, "GRACE_S", GRACE_S)
    async with ScriptedEngine() as engine, served([engine.url], tmp_path) as gateway:
        yield gateway


async def ended(gateway: ServedGateway, name: str) -> bool:
    """Wait until the request's reservation is gone, up to the test timeout."""
    for _ in range(100):
        if gateway.pool.router.reservations.get(name) is None:
            return True
        await asyncio.sleep(0.05)
    return False


@pytest.mark.parametrize("wait", [True, False])
async def test_an_unreported_request_ends_at_its_estimate(gateway: ServedGateway, wait: bool) -> None:
    begin = time.time()
    _, answer, _ = await gateway.post(ROUTE, {**QUESTION, "wait": wait})
    name = answer["decision_id"]
    assert gateway.pool.router.reservations.get(name) is not None
    assert GRACE_S <= answer["expires_at"] - begin < GRACE_S + 30
    assert await ended(gateway, name)
    gateway.pool.router.check()


async def test_an_unreported_request_does_not_judge_its_engine(gateway: ServedGateway) -> None:
    _, answer, _ = await gateway.post(ROUTE, QUESTION)
    progress = gateway.pool.progress.engine(answer["engine"]["id"])
    late = progress.counts(time.monotonic() + 60, 0)
    assert (late.dispatched, late.prefilling, late.slowness_samples) == (0, 0, 0)
    gateway.pool.costs.check()
    assert gateway.pool.progress.work_s > 0


async def test_a_caller_that_reported_one_request_is_expected_to_report_the_next(gateway: ServedGateway) -> None:
    _, first, _ = await gateway.post(ROUTE, QUESTION)
    await gateway.post(f"/api/v1/requests/{first['decision_id']}/complete", {})
    _, answer, _ = await gateway.post(ROUTE, QUESTION)
    assert answer["expires_at"] - time.time() > 60
    await asyncio.sleep(2 * GRACE_S)
    assert gateway.pool.router.reservations.get(answer["decision_id"]) is not None
    progress = gateway.pool.progress.engine(answer["engine"]["id"])
    assert progress.counts(time.monotonic(), 0).dispatched == 1


async def test_a_late_report_is_still_counted(gateway: ServedGateway) -> None:
    _, answer, _ = await gateway.post(ROUTE, QUESTION)
    name = answer["decision_id"]
    assert await ended(gateway, name)
    status, reported, _ = await gateway.post(f"/api/v1/requests/{name}/complete", {"cached_tokens": 0})
    assert (status, reported["outcome"]) == (200, "completed")
    gateway.pool.router.check()
    gateway.pool.costs.check()


def test_a_key_counts_as_reporting_for_a_limited_time() -> None:
    keys = ReportingKeys()
    assert not keys.reports("k", 0.0)
    keys.reported("k", 5.0)
    assert keys.reports("k", 5.0 + REPORTED_S)
    assert not keys.reports("k", 6.0 + REPORTED_S)


async def test_requests_expire_in_the_order_of_their_deadlines() -> None:
    over: list[str] = []
    waiting = UntrackedRequests(over.append)  # type: ignore[arg-type]  # names replace records
    for name, life_s in (("late", 0.2), ("soon", 0.05), ("never", 60.0)):
        waiting.add(name, life_s)  # type: ignore[arg-type]
    await asyncio.sleep(0.4)
    assert (over, len(waiting)) == (["soon", "late"], 1)
