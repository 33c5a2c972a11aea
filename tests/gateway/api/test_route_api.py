"""The decision API returns an engine with the reasons, once per name, to authorized callers only."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.access.isolation_domains import SALTS, cache_salt
from gateway.api.route_request import MAX_BATCH, RouteRequest, prompt_of, read, read_flat
from gateway.base.settings import PROXY_BODY_LIMIT
from gateway.server.http.json_body import BadBodyError
from routing.policy.policy_document import RoutingPolicy
from tests.gateway.raw_http import RawConnection, post
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import KEY, KEYRING, MODEL, OTHER_KEY, ServedGateway, served
from tests.patience import PATIENCE_S, until

ROUTE = "/api/v1/route"
CHAT = [{"role": "user", "content": "x" * 40}]
TIGHT = RoutingPolicy(prefill_window_tokens=1, lookahead_s=0.0, queue_limit=2, max_wait_s=0.4)


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[ServedGateway]:
    async with ScriptedEngine() as one, ScriptedEngine() as two, served([one.url, two.url], tmp_path) as gateway:
        yield gateway


@pytest.mark.parametrize("wait", [True, False])
@pytest.mark.parametrize(
    ("prompt", "source", "tokens"),
    [
        ({"block_hashes": [1, -2, 2**64 - 1]}, "hashes", 48),
        ({"block_hashes": [1, 2], "prompt_tokens": 40}, "hashes", 40),
        ({"token_ids": list(range(50))}, "tokens", 50),
        ({"prompt": "y" * 40}, "tokenized", 40),
        ({"prompt": [1, 2, 3]}, "tokens", 3),
        ({"prompt": ["y" * 30, "z"]}, "tokenized", 31),
        ({"messages": CHAT}, "tokenized", 40),
    ],
)
async def test_every_form_of_prompt_gets_an_engine(
    gateway: ServedGateway, prompt: dict[str, Any], source: str, tokens: int, wait: bool
) -> None:
    status, answer, headers = await gateway.post(ROUTE, {"model": MODEL, "wait": wait, **prompt})
    assert status == 200
    assert (answer["key_source"], answer["prompt_tokens"]) == (source, tokens)
    engine = gateway.pool.engines[answer["engine"]["id"]].entry
    assert answer["engine"] == {"id": engine.engine_id, "name": engine.name, "url": engine.url}
    assert headers["x-headway-decision"] == answer["decision_id"]
    assert answer["candidates"][0]["engine_id"] == engine.engine_id
    assert answer["placement"] == "least_cost"
    assert answer["body"] == {}


@pytest.mark.parametrize(
    ("path", "body", "same"),
    [
        ("/v1/responses", {"input": "x" * 40, "instructions": "Be brief.", "max_output_tokens": 9}, True),
        ("/v1/messages?beta=true", {"messages": CHAT, "system": "Be brief.", "max_tokens": 9}, True),
        ("/v1/embeddings", {"input": ["x" * 40, "y"]}, False),
        ("/v1/rerank", {"query": "x" * 40, "documents": ["y"]}, False),
    ],
)
async def test_a_proxy_names_the_endpoint_of_the_forwarded_body(
    gateway: ServedGateway, path: str, body: dict[str, Any], same: bool
) -> None:
    asked = {"model": MODEL, "wait": False, **body}
    status, answer, _ = await gateway.post(ROUTE, asked, headers={"x-original-uri": path})
    assert (status, answer["prompt_tokens"] > 0) == (200, True)
    chat = {"model": MODEL, "wait": False, "messages": [{"role": "system", "content": "Be brief."}, *CHAT]}
    reported = (await gateway.post(ROUTE, chat))[1]
    assert (answer["prompt_tokens"] == reported["prompt_tokens"]) == same


@pytest.mark.parametrize("target", [f"{ROUTE}?wait=false", ROUTE])
async def test_a_forwarded_body_that_does_not_wait_is_answered_by_the_fast_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    async with ScriptedEngine() as engine, served([engine.url], tmp_path, key_source="approximate") as gateway:
        body = {"model": MODEL, "messages": CHAT, "stream": True, "max_completion_tokens": 9}
        asked = body if "?" in target else {**body, "wait": False}
        headers = {"x-original-uri": "/v1/chat/completions"}
        taken = (await gateway.post(target, asked, headers=headers))[1]

        def declined(*_: object) -> None:
            return None

        monkeypatch.setattr(gateway.app._route_api, "at_once", declined)
        ordinary = (await gateway.post(target, asked, headers=headers))[1]
        assert taken.keys() == ordinary.keys()
        assert taken["prompt_tokens"] == ordinary["prompt_tokens"] > 0

        def unused(*_: object) -> None:
            raise AssertionError("the ordinary way was taken")

        monkeypatch.undo()
        monkeypatch.setattr(gateway.app._route_api, "_known_pool", unused)
        for path in (headers["x-original-uri"], "/somewhere"):
            assert (await gateway.post(target, asked, headers={"x-original-uri": path}))[0] == 200
        assert (await gateway.post(ROUTE, body, headers=headers))[0] == 500


async def test_a_body_for_another_endpoint_is_rejected_with_the_reason(gateway: ServedGateway) -> None:
    asked = {"model": MODEL, "messages": CHAT, "wait": False}
    status, answer, _ = await gateway.post(ROUTE, asked, headers={"x-original-uri": "/v1/responses"})
    assert (status, answer["error"]["param"]) == (400, "input")
    assert (await gateway.post(ROUTE, asked, headers={"x-original-uri": "/somewhere"}))[0] == 200


async def test_the_router_holds_a_reservation_until_the_end_is_reported(gateway: ServedGateway) -> None:
    _, answer, _ = await gateway.post(ROUTE, {"model": MODEL, "block_hashes": [1], "wait": False})
    assert gateway.pool.router.reservations.get(answer["decision_id"]) is not None
    await gateway.post(f"/api/v1/requests/{answer['decision_id']}/complete", {})
    assert gateway.pool.router.reservations.get(answer["decision_id"]) is None


async def test_a_cached_prefix_is_predicted(gateway: ServedGateway) -> None:
    question = {"model": MODEL, "block_hashes": list(range(24)), "wait": False}
    _, first, _ = await gateway.post(ROUTE, question)
    _, second, _ = await gateway.post(ROUTE, question)
    assert first["predicted_hit_tokens"] == 0
    holders = {item["engine_id"]: item["hit_tokens"] for item in second["candidates"]}
    assert holders[first["engine"]["id"]] >= 0
    assert second["decision_id"] != first["decision_id"]


async def test_the_returned_body_contains_the_priority(gateway: ServedGateway) -> None:
    _, answer, _ = await gateway.post(ROUTE, {"model": MODEL, "block_hashes": [1], "priority": -5, "wait": False})
    assert answer["body"] == {"priority": -5}


async def test_an_isolating_pool_gives_each_tenant_a_different_salt(tmp_path: Path) -> None:
    question = {"model": MODEL, "block_hashes": [1], "wait": False}
    async with ScriptedEngine() as engine, served([engine.url], tmp_path, isolated=True) as gateway:
        _, mine, _ = await gateway.post(ROUTE, question)
        _, again, _ = await gateway.post(ROUTE, question)
        _, other, _ = await gateway.post(ROUTE, question, key=OTHER_KEY)
    assert mine["body"] == again["body"] == {"cache_salt": cache_salt(KEYRING.used.derive(SALTS), "tenant-a")}
    assert other["body"] != mine["body"]


BAD: list[tuple[Any, int, str]] = [
    ({"model": MODEL}, 400, "bad_field"),
    ({"model": MODEL, "prompt": "x", "messages": CHAT}, 400, "bad_field"),
    ({"model": MODEL, "block_hashes": [1], "token_ids": [1]}, 400, "bad_field"),
    ({"model": MODEL, "block_hashes": [2**64]}, 400, "bad_field"),
    ({"model": MODEL, "block_hashes": [-(2**63) - 1], "wait": False}, 400, "bad_field"),
    ({"model": MODEL, "block_hashes": ["a"]}, 400, "bad_field"),
    ({"model": MODEL, "block_hashes": [1.5]}, 400, "bad_field"),
    ({"model": MODEL, "token_ids": [-1]}, 400, "bad_field"),
    ({"model": MODEL, "token_ids": [2**32]}, 400, "bad_field"),
    ({"model": MODEL, "prompt": []}, 400, "bad_field"),
    ({"model": MODEL, "prompt": [1, "a"]}, 400, "bad_field"),
    ({"model": MODEL, "prompt": 5}, 400, "bad_field"),
    ({"model": MODEL, "messages": []}, 400, "bad_field"),
    ({"model": MODEL, "messages": ["hi"]}, 400, "bad_field"),
    ({"model": MODEL, "messages": CHAT, "ttft_slo_s": 0}, 400, "bad_field"),
    ({"model": MODEL, "messages": CHAT, "max_tokens": -1}, 400, "bad_field"),
    ({"model": MODEL, "messages": CHAT, "wait": "yes"}, 400, "bad_field"),
    ({"model": "", "messages": CHAT}, 400, "bad_field"),
    ({"model": 7, "messages": CHAT}, 400, "bad_field"),
    ({"messages": CHAT}, 400, "bad_field"),
    ({"model": "other", "messages": CHAT}, 404, "model_not_found"),
    ({"model": "other", "block_hashes": [1], "wait": False}, 404, "model_not_found"),
    ({"model": MODEL, "block_hashes": [1], "prompt_tokens": 200_000, "wait": False}, 400, "context_length_exceeded"),
    ([], 400, "not_an_object"),
    (b"[" * 5000, 400, "too_deep"),
    (b'{"model": "' + MODEL.encode() + b'", "block_hashes": [1], "x": "\\ud800"}', 400, "lone_surrogate"),
    (b"{", 400, "not_json"),
    (b"", 400, "empty_body"),
    (bytes(PROXY_BODY_LIMIT + 1), 413, "body_too_large"),
]


@pytest.mark.parametrize("number", range(len(BAD)))
async def test_invalid_input_gets_its_status_is_counted_and_has_no_side_effects(
    gateway: ServedGateway, number: int
) -> None:
    body, status, code = BAD[number]
    got, answer, _ = await gateway.post(ROUTE, body)
    assert (got, answer["error"]["code"]) == (status, code)
    assert set(answer["error"]) == {"message", "type", "code", "param"}
    assert f'headway_rejected_input_total{{cause="{code}"}} 1.0' in await gateway.metrics()
    assert (await gateway.post(ROUTE, {"model": MODEL, "block_hashes": [1], "wait": False}))[0] == 200


async def test_the_query_parameter_disables_waiting(tmp_path: Path) -> None:
    async with ScriptedEngine() as engine, served([engine.url], tmp_path, policy=TIGHT) as gateway:
        question = {"model": MODEL, "prompt": "y" * 64}
        decided = [await gateway.post(f"{ROUTE}?wait=false", question) for _ in range(4)]
        assert {status for status, _, _ in decided} == {200}
        status, answer, _ = await gateway.post(ROUTE, question)
        assert (status, answer["error"]["code"]) == (429, "wait_expired")


async def test_a_repeated_name_gets_the_same_decision(gateway: ServedGateway) -> None:
    question = {"model": MODEL, "block_hashes": [1], "wait": False}
    named = {"x-request-id": "job-1"}
    _, first, _ = await gateway.post(ROUTE, question, headers=named)
    _, again, headers = await gateway.post(ROUTE, question, headers=named)
    _, other, _ = await gateway.post(ROUTE, question, key=OTHER_KEY, headers=named)
    assert again == first
    assert headers["x-request-id"] == "job-1"
    assert other["decision_id"] != first["decision_id"]
    assert len(gateway.pool.router.reservations) == 2


async def test_concurrent_calls_with_one_name_reserve_once(gateway: ServedGateway) -> None:
    question = {"model": MODEL, "prompt": "y" * 64}
    calls = [gateway.post(ROUTE, question, headers={"x-request-id": "job-2"}) for _ in range(10)]
    ids = {answer["decision_id"] for _, answer, _ in await asyncio.gather(*calls)}
    assert len(ids) == 1
    assert len(gateway.pool.router.reservations) == 1


async def test_a_name_can_be_reused_after_a_failed_call(gateway: ServedGateway) -> None:
    named = {"x-request-id": "job-3"}
    assert (await gateway.post(ROUTE, {"model": "other", "block_hashes": [1]}, headers=named))[0] == 404
    assert (await gateway.post(ROUTE, {"model": MODEL, "block_hashes": [1]}, headers=named))[0] == 200


async def test_a_waiting_request_is_answered_when_the_engine_is_free(tmp_path: Path) -> None:
    policy = RoutingPolicy(prefill_window_tokens=1, lookahead_s=0.0)
    async with ScriptedEngine() as engine, served([engine.url], tmp_path, policy=policy) as gateway:
        long = {"model": MODEL, "block_hashes": [1], "prompt_tokens": 100_000}
        _, first, _ = await gateway.post(ROUTE, long)
        second = asyncio.create_task(gateway.post(ROUTE, {"model": MODEL, "block_hashes": [5]}))
        await until(lambda: gateway.pool.router.waiting)
        assert not second.done()
        await gateway.post(f"/api/v1/requests/{first['decision_id']}/first_token", {})
        async with asyncio.timeout(PATIENCE_S):
            status, answer, _ = await second
    assert status == 200
    assert answer["queued_s"] > 0.0


async def test_a_full_queue_or_expired_wait_gets_429(tmp_path: Path) -> None:
    long = {"model": MODEL, "block_hashes": [1], "prompt_tokens": 100_000}
    async with ScriptedEngine() as engine, served([engine.url], tmp_path, policy=TIGHT) as gateway:
        await gateway.post(ROUTE, long)
        results = await asyncio.gather(*(gateway.post(ROUTE, long) for _ in range(3)))
        text = await gateway.metrics()
    assert sorted(answer["error"]["code"] for _, answer, _ in results) == ["queue_full", "wait_expired", "wait_expired"]
    assert {status for status, _, _ in results} == {429}
    assert all(int(headers["retry-after"]) >= 1 for _, _, headers in results)
    assert 'headway_requests_total{outcome="rejected",pool="pool"} 3.0' in text


@pytest.mark.parametrize("wait", [True, False])
async def test_a_fleet_without_engines_gets_503(tmp_path: Path, wait: bool) -> None:
    async with served(["http://127.0.0.1:9"], tmp_path, policy=TIGHT) as gateway:
        status, answer, headers = await gateway.post(ROUTE, {"model": MODEL, "block_hashes": [1], "wait": wait})
    assert (status, answer["error"]["code"]) in {(503, "no_engine"), (429, "wait_expired")}
    assert int(headers["retry-after"]) >= 1


async def test_a_client_that_disconnects_while_waiting_leaves_no_state(tmp_path: Path) -> None:
    policy = RoutingPolicy(prefill_window_tokens=1, lookahead_s=0.0)
    async with ScriptedEngine() as engine, served([engine.url], tmp_path, policy=policy) as gateway:
        await gateway.post(ROUTE, {"model": MODEL, "block_hashes": [1], "prompt_tokens": 100_000})
        connection = await RawConnection.open(gateway.url)
        body = json.dumps({"model": MODEL, "block_hashes": [5]}).encode()
        await connection.send(post(ROUTE, body, f"Authorization: Bearer {KEY}"))
        await asyncio.sleep(0.05)
        assert len(gateway.pool.router.waiting) == 1
        await connection.close()
        await asyncio.sleep(0.05)
        assert len(gateway.pool.router.waiting) == 0
        assert len(gateway.pool.router.reservations) == 1
        assert 'headway_requests_total{outcome="cancelled",pool="pool"} 1.0' in await gateway.metrics()


async def test_each_batch_entry_is_answered_separately(gateway: ServedGateway) -> None:
    good = {"model": MODEL, "block_hashes": [1], "wait": False}
    for body in ([good, {**good, "model": "other"}], {"requests": [good, {**good, "model": "other"}]}):
        status, answer, _ = await gateway.post("/api/v1/route/batch", body)
        assert status == 200
        assert answer["decisions"][0]["engine"]["id"].startswith("engine-")
        assert answer["decisions"][1]["error"]["code"] == "model_not_found"


@pytest.mark.parametrize("entry", [None, 1, "a", [None, None]])
async def test_a_batch_entry_that_is_not_an_object_is_a_client_error(gateway: ServedGateway, entry: object) -> None:
    status, answer, _ = await gateway.post("/api/v1/route/batch", {"requests": [entry]})
    assert status == 400
    assert answer["error"]["code"] == "not_an_object"


async def test_a_named_batch_is_repeatable(gateway: ServedGateway) -> None:
    body = [{"model": MODEL, "block_hashes": [number], "wait": False} for number in range(3)]
    named = {"x-request-id": "batch-1"}
    _, first, _ = await gateway.post("/api/v1/route/batch", body, headers=named)
    _, again, _ = await gateway.post("/api/v1/route/batch", body, headers=named)
    assert again == first
    assert len({item["decision_id"] for item in first["decisions"]}) == 3


@pytest.mark.parametrize("count", [0, MAX_BATCH + 1])
async def test_a_batch_size_is_limited(gateway: ServedGateway, count: int) -> None:
    body = [{"model": MODEL, "block_hashes": [1], "wait": False}] * count
    status, answer, _ = await gateway.post("/api/v1/route/batch", body)
    assert (status, answer["error"]["param"]) == (400, "requests")


async def test_flat_and_full_parsing_agree() -> None:
    body = json.dumps({"model": "m", "block_hashes": [1, 2], "prompt_tokens": 7, "wait": False}).encode()
    short = read_flat(body)
    assert isinstance(short, RouteRequest)
    assert prompt_of(short) == prompt_of(await read(body[:-1] + b', "unknown": 1}'))


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"m","messages":[{}]}',
        b'{"model":"m\\u0000","block_hashes":[1]}',
        b'{"model":"m","block_hashes":[1],"other":1}',
        b"nonsense",
    ],
)
def test_the_fast_path_declines_bodies_that_need_more_checks(body: bytes) -> None:
    assert read_flat(body) is None


async def test_a_nul_character_in_a_name_is_rejected() -> None:
    with pytest.raises(BadBodyError):
        await read(b'{"model":"m\\u0000","block_hashes":[1]}')
