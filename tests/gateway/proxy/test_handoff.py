"""Requests on two engines: the body sent to each leg, and the outcome when either leg fails."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.app import AppSettings
from gateway.proxy.attempt import RelaySettings
from routing.policy.policy_document import RoutingPolicy
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import CHAT, KEY, MODEL, ServedGateway, served
from tests.patience import until

BODY = {"model": MODEL, "messages": [{"role": "user", "content": "x" * 40}], "max_tokens": 9}
STREAM = {**BODY, "stream": True}
SETTINGS = AppSettings(relay=RelaySettings(answer_s=60.0, hang_s=0.5))


class Fleet:
    """Two prefill and two decode engines behind a gateway."""

    def __init__(self, engines: list[ScriptedEngine], gateway: ServedGateway) -> None:
        self.prefill, self.decode = engines[:2], engines[2:]
        self.gateway = gateway

    def handoffs(self, outcome: str) -> float:
        return self.gateway.gateway.metrics.handoffs.value("pool", outcome)

    def is_idle(self) -> bool:
        router = self.gateway.pool.router
        router.check()
        assert router.pairs is not None
        return len(router.reservations) + len(router.waiting) + len(router.pairs.legs) == 0

    async def explain(self, headers: dict[str, str]) -> Any:
        return (await self.gateway.get(f"/api/v1/explain/{headers['x-headway-decision']}"))[1]

    async def stream(self, body: dict[str, Any] = STREAM) -> tuple[str, dict[str, str]]:
        sent = {"authorization": f"Bearer {KEY}"}
        async with self.gateway.client.post(self.gateway.url + CHAT, json=body, headers=sent) as response:
            assert response.status == 200, await response.read()
            return await response.text(), {name.lower(): value for name, value in response.headers.items()}


@asynccontextmanager
async def serving(state_dir: Path, prefill: int = 2, decode: int = 2, **pool: Any) -> AsyncIterator[Fleet]:
    async with AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(ScriptedEngine()) for _ in range(prefill + decode)]
        for number, engine in enumerate(engines):
            engine.cached_tokens = 64 if number < prefill else 99
        roles = ["prefill"] * prefill + ["decode"] * decode
        urls = [engine.url for engine in engines]
        gateway = await stack.enter_async_context(served(urls, state_dir, settings=SETTINGS, roles=roles, **pool))
        fleet = Fleet(engines, gateway)
        fleet.prefill, fleet.decode = engines[:prefill], engines[prefill:]
        yield fleet


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    async with serving(tmp_path) as fleet:
        yield fleet


def bodies(engines: list[ScriptedEngine]) -> list[dict[str, Any]]:
    return [body for engine in engines for body in engine.bodies]


async def test_one_engine_prefills_and_another_responds(fleet: Fleet) -> None:
    text, headers = await fleet.stream()
    assert "Hel" in text
    (first,), (second,) = bodies(fleet.prefill), bodies(fleet.decode)
    assert (first["max_tokens"], first["stream"], first["stream_options"]) == (1, False, None)
    assert first["kv_transfer_params"]["do_remote_decode"] is True
    names = {engine.headers[0]["x-request-id"] for engine in fleet.prefill + fleet.decode if engine.headers}
    assert len(names) == 1, "both legs of an attempt have one name"
    assert names.pop().startswith(headers["x-headway-decision"] + "-")
    assert (second["max_tokens"], second["stream"]) == (9, True)
    assert second["kv_transfer_params"]["remote_url"] in [engine.url for engine in fleet.prefill]
    explained = await fleet.explain(headers)
    assert explained["decision"]["pair"]["candidates"][0]["fits"] is True
    assert explained["decode_engine_name"] in ("e2", "e3")
    assert "TPOT" in explained["pair_reason_words"]
    outcome = explained["outcome"]
    assert outcome["state"] == "completed"
    assert outcome["cached_tokens"] == 64, "those of the prefill"
    assert 0 < outcome["handed_over_after_s"] <= outcome["first_token_after_s"]
    assert fleet.handoffs("done") == 1
    assert 'headway_handoff_seconds_count{pool="pool"} 1.0' in await fleet.gateway.metrics()
    assert fleet.is_idle()


@pytest.mark.parametrize("streamed", [False, True])
async def test_the_client_gets_the_cached_tokens_of_the_prefill(fleet: Fleet, streamed: bool) -> None:
    if streamed:
        text, _ = await fleet.stream({**STREAM, "stream_options": {"include_usage": True}})
        events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
        usage = events[-1]["usage"]
    else:
        status, answer, _ = await fleet.gateway.post(CHAT, BODY)
        assert status == 200
        usage = answer["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == 64
    assert usage["completion_tokens"] == 2
    assert fleet.is_idle()


async def test_handoff_fields_of_a_client_never_reach_an_engine(fleet: Fleet) -> None:
    await fleet.stream({**STREAM, "kv_transfer_params": {"remote_host": "evil"}})
    assert "evil" not in json.dumps(bodies(fleet.prefill) + bodies(fleet.decode))


async def test_a_client_error_comes_only_from_the_prefill_engine(fleet: Fleet) -> None:
    for engine in fleet.prefill:
        engine.status = 400
    status, _, headers = await fleet.gateway.post(CHAT, BODY)
    assert status == 400
    assert bodies(fleet.decode) == []
    assert (await fleet.explain(headers))["outcome"]["state"] == "client_error"
    assert fleet.is_idle()


@pytest.mark.parametrize("how", ["dies", "fails", "stalls", "keeps"])
async def test_a_failed_prefill_is_retried_on_another_engine(fleet: Fleet, how: str) -> None:
    await fleet.stream()
    bad = fleet.prefill[0] if fleet.prefill[0].bodies else fleet.prefill[1]
    bad.die_before_first_byte = how == "dies"
    bad.status = 500 if how == "fails" else 200
    bad.stall = how == "stalls"
    bad.hands_over = how != "keeps"
    for _ in range(2):  # they take turns: it is the turn of the bad one in one of two
        text, headers = await fleet.stream()
        assert "[DONE]" in text
        explained = await fleet.explain(headers)
        assert explained["outcome"]["state"] == "completed"
        if len(explained["attempts"]) == 4:
            break
    assert len(explained["attempts"]) == 4
    assert explained["attempts"][0] != explained["attempts"][2]
    assert fleet.handoffs("prefill_failed") == 1
    assert fleet.is_idle()


@pytest.mark.parametrize("how", ["dies", "fails", "rejects", "stalls"])
async def test_a_failed_decode_leg_gets_a_new_pair(fleet: Fleet, how: str) -> None:
    await fleet.stream()
    bad, good = sorted(fleet.decode, key=lambda engine: -len(engine.bodies))
    bad.die_before_first_byte = how == "dies"
    bad.handoff_status = {"fails": 500, "rejects": 400}.get(how, 200)
    bad.stall = how == "stalls"
    text, headers = await fleet.stream()
    assert "[DONE]" in text
    explained = await fleet.explain(headers)
    names = ["engine-2", "engine-3"] if bad is fleet.decode[0] else ["engine-3", "engine-2"]
    assert explained["attempts"][1::2] == names
    assert explained["outcome"]["state"] == "completed"
    assert good.bodies[-1]["kv_transfer_params"]["do_remote_prefill"] is True
    assert fleet.handoffs("decode_failed") == 1
    assert fleet.is_idle()


async def test_without_handoff_the_decode_engine_prefills_itself(fleet: Fleet) -> None:
    for engine in fleet.decode:
        engine.handoff_status = 500
    text, headers = await fleet.stream()
    assert "[DONE]" in text
    sent = [body.get("kv_transfer_params") is not None for body in bodies(fleet.decode)]
    assert sorted(sent) == [False, True, True]
    alone = next(body for body in bodies(fleet.decode) if "kv_transfer_params" not in body)
    assert alone["max_tokens"] == 9
    explained = await fleet.explain(headers)
    assert explained["outcome"]["cached_tokens"] == 99, "its own cache counts then"
    assert (fleet.handoffs("decode_failed"), fleet.handoffs("alone")) == (2, 1)
    assert fleet.is_idle()


async def test_a_decode_engine_that_dies_during_its_response_ends_it_with_an_error(fleet: Fleet) -> None:
    for engine in fleet.decode:
        engine.die_after_chunks = 1
    text, headers = await fleet.stream()
    assert "broken_stream" in text
    assert (await fleet.explain(headers))["outcome"]["state"] == "failed"
    assert fleet.handoffs("decode_failed") == 1
    assert fleet.is_idle()


@pytest.mark.parametrize("leg", ["prefill", "decode"])
async def test_a_client_disconnect_ends_the_running_leg(fleet: Fleet, leg: str) -> None:
    running = fleet.prefill if leg == "prefill" else fleet.decode
    for engine in running:
        engine.stall = True
    asking = asyncio.create_task(fleet.stream())
    await until(lambda: bodies(running))
    asking.cancel()
    await until(lambda: any(engine.disconnected.is_set() for engine in running))
    await until(fleet.is_idle)
    assert fleet.handoffs("cancelled") == 1
    if leg == "prefill":
        assert bodies(fleet.decode) == []


async def test_a_prefill_is_not_awaited_when_its_decode_engine_is_lost(tmp_path: Path) -> None:
    async with serving(tmp_path, decode=1, policy=RoutingPolicy(max_wait_s=0.5)) as fleet:
        for engine in fleet.prefill:
            engine.stall = True
        asking = asyncio.create_task(fleet.gateway.post(CHAT, BODY))
        await until(lambda: bodies(fleet.prefill))
        await fleet.decode[0].stop()
        fleet.gateway.pool.engines["engine-2"].breaker.record_failure("connect", 0.0)
        status, answer, _ = await asking
        assert (status, answer["error"]["code"]) == (429, "wait_expired"), "no other engine decodes"
        assert fleet.handoffs("decode_lost") == 1
        assert fleet.is_idle()


async def test_the_decision_api_names_both_engines_with_their_fragments(fleet: Fleet) -> None:
    asked = {"model": MODEL, "token_ids": list(range(64)), "wait": False, "priority": 3}
    status, answer, _ = await fleet.gateway.post("/api/v1/route", asked)
    assert status == 200
    pair = answer["pair"]
    assert pair["prefill"]["engine"] == answer["engine"]
    assert pair["prefill"]["engine"]["name"] in ("e0", "e1")
    assert pair["decode"]["engine"]["name"] in ("e2", "e3")
    assert pair["prefill"]["body"]["kv_transfer_params"]["do_remote_decode"] is True
    assert (pair["prefill"]["body"]["max_tokens"], pair["prefill"]["body"]["stream"]) == (1, False)
    assert pair["decode"]["body"] == answer["body"] == {"priority": 3}
    assert pair["carry"] == "kv_transfer_params"
    assert pair["tpot_s"] > 0
    url = f"/api/v1/requests/{answer['decision_id']}/"
    router = fleet.gateway.pool.router
    assert (await fleet.gateway.post(url + "handed_over", {"cached_tokens": 16}))[0] == 200
    assert len(router.reservations) == 0
    assert not fleet.is_idle()
    assert (await fleet.gateway.post(url + "first_token", {}))[0] == 200
    await fleet.gateway.post(url + "complete", {"cached_tokens": 64, "output_tokens": 5})
    _, explained = await fleet.gateway.get(f"/api/v1/explain/{answer['decision_id']}")
    assert explained["outcome"]["cached_tokens"] == 16
    assert fleet.is_idle()


async def test_a_failure_reported_by_a_caller_frees_both_legs(fleet: Fleet) -> None:
    for verbs in (["fail"], ["handed_over", "fail"]):
        _, answer, _ = await fleet.gateway.post("/api/v1/route", {"model": MODEL, "token_ids": [1], "wait": False})
        for verb in verbs:
            await fleet.gateway.post(f"/api/v1/requests/{answer['decision_id']}/{verb}", {})
        assert fleet.is_idle()


async def test_a_decision_for_one_engine_has_no_pair(tmp_path: Path) -> None:
    async with ScriptedEngine() as engine, served([engine.url], tmp_path) as gateway:
        _, answer, _ = await gateway.post("/api/v1/route", {"model": MODEL, "token_ids": [1], "wait": False})
    assert "pair" not in answer
