"""A client that waits for a stream: what it receives before the first token, and how its request can still end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import openai
import pytest

from gateway.app import AppSettings
from gateway.proxy.attempt import RelaySettings
from gateway.server.http.error_formats import MESSAGES
from routing.policy.policy_document import RoutingPolicy, Stage
from tests.gateway.proxy.faulty_engine import COMMENT, GENERATING, REASON, RESPONSES, FaultyEngine, body_for
from tests.gateway.served_gateway import KEY, MODEL, ServedGateway, served
from tests.patience import PATIENCE_S, until

CHAT = GENERATING[0]
OURS = b": waiting\n\n"
COMMENTING = AppSettings(relay=RelaySettings(answer_s=60.0, hang_s=60.0, comment_s=0.02))
ROUND_ROBIN = RoutingPolicy(placement=Stage(name="round_robin"), order=Stage(name="fifo"))
SENT = {"authorization": f"Bearer {KEY}"}


@asynccontextmanager
async def two(tmp_path: Path, fault: str) -> AsyncIterator[tuple[FaultyEngine, FaultyEngine, ServedGateway]]:
    """Serve a gateway that sends comments over two engines, of which the first gets the first request."""
    async with (
        FaultyEngine() as one,
        FaultyEngine() as two,
        served([one.url, two.url], tmp_path, policy=ROUND_ROBIN, settings=COMMENTING) as gateway,
    ):
        one.fault = fault
        yield one, two, gateway


async def comments_then(gateway: ServedGateway, path: str, engines: list[FaultyEngine]) -> tuple[int, bytes, dict]:
    """Request a stream, release the engines after two comments, and return status, bytes, and outcome."""
    body = body_for(path, MODEL, stream=True)
    async with asyncio.timeout(PATIENCE_S), gateway.client.post(gateway.url + path, json=body, headers=SENT) as answer:
        text = b""
        async for chunk in answer.content.iter_any():
            text += chunk
            if text.count(OURS) >= 2:
                for engine in engines:
                    engine.waits.set()
        assert answer.headers["content-type"].startswith("text/event-stream")
    _, explained = await gateway.get(f"/api/v1/explain/{answer.headers['x-headway-decision']}")
    return answer.status, text, explained["outcome"]


async def test_comments_of_an_engine_are_not_a_first_token(tmp_path: Path) -> None:
    async with FaultyEngine() as engine, served([engine.url], tmp_path) as gateway:
        engine.fault = "slow"
        body = body_for(CHAT, MODEL, stream=True)
        asked = asyncio.create_task(gateway.client.post(gateway.url + CHAT, json=body, headers=SENT))
        await until(lambda: engine.calls == 1)
        await asyncio.sleep(0.1)
        (reservation,) = gateway.pool.router.reservations
        record = gateway.app.recent.get(reservation.request.request_id)
        assert record is not None
        assert record.first_token_s is None
        assert not asked.done(), "without the setting nothing is sent before the answer begins"
        engine.waits.set()
        async with await asked as answer:
            text = await answer.read()
        assert record.first_token_s is not None
        assert text.startswith(COMMENT), "the engine's own comments come with the answer"
        assert OURS not in text


@pytest.mark.parametrize("path", GENERATING)
async def test_a_waiting_client_gets_comments_and_then_the_response(tmp_path: Path, path: str) -> None:
    async with two(tmp_path, "slow") as (slow, _, gateway):
        status, text, outcome = await comments_then(gateway, path, [slow])
        assert (status, outcome["state"]) == (200, "completed")
        rest = text.lstrip(OURS)
        assert text.startswith(OURS * 2)
        assert OURS not in rest
        assert b"lo" in rest


@pytest.mark.parametrize("fault", ["slow_then_dies", "slow_then_500"])
async def test_after_comments_another_engine_can_still_respond(tmp_path: Path, fault: str) -> None:
    async with two(tmp_path, fault) as (bad, good, gateway):
        status, text, outcome = await comments_then(gateway, CHAT, [bad])
        assert (status, outcome["state"]) == (200, "completed")
        assert (bad.calls, good.calls) == (1, 1)
        assert REASON.encode() not in text
        assert b"lo" in text


@pytest.mark.parametrize("path", GENERATING)
async def test_after_comments_an_error_is_the_only_event(tmp_path: Path, path: str) -> None:
    async with two(tmp_path, "slow_then_500") as (one, other, gateway):
        other.fault = "slow_then_500"
        status, text, outcome = await comments_then(gateway, path, [one, other])
        assert (status, outcome["state"], outcome["error"]) == (200, "failed", "http_500")
        events = [event for event in text.split(b"\n\n") if event and not event.startswith(b":")]
        assert len(events) == 1
        assert REASON.encode() in events[0]
        assert events[0].startswith(b"event: error\n" if path in (RESPONSES, MESSAGES) else b"data: ")


async def test_the_openai_client_skips_comments_and_raises_the_error_after_them(tmp_path: Path) -> None:
    async with two(tmp_path, "slow_then_500") as (one, other, gateway):
        other.fault = "slow_then_500"
        one.waits.set()
        other.waits.set()
        async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=KEY, max_retries=0) as client:
            asked = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "stream": True}
            with pytest.raises(openai.APIError, match=REASON):
                async for _ in await client.chat.completions.create(**asked):
                    pass


async def test_a_client_disconnect_during_comments_ends_its_request(tmp_path: Path) -> None:
    async with two(tmp_path, "slow") as (slow, _, gateway):
        body = body_for(CHAT, MODEL, stream=True)
        async with gateway.client.post(gateway.url + CHAT, json=body, headers=SENT) as answer:
            assert (await answer.content.readany()).startswith(OURS)
        await until(lambda: len(gateway.pool.router.reservations) == 0)
        _, explained = await gateway.get(f"/api/v1/explain/{answer.headers['x-headway-decision']}")
        assert explained["outcome"]["state"] == "cancelled"
        assert slow.calls == 1
