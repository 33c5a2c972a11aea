"""Checks that every proxy in front of engines must pass, and the counts of the gateway behind it."""

from __future__ import annotations

import asyncio
import io
import json
import re
from collections.abc import Sequence
from typing import Any

import aiohttp

from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import MODEL, ServedGateway
from tests.patience import PATIENCE_S

USAGE = {"input_tokens": 100, "output_tokens": 7, "input_tokens_details": {"cached_tokens": 64}}
OTHER_APIS: dict[str, tuple[dict[str, Any], bytes | list[bytes]]] = {
    "/v1/responses": (
        {"input": "hello " * 20, "instructions": "Be brief.", "stream": True},
        [
            b'event: response.created\ndata: {"type": "response.created", "response": {"input": "delta"}}\n\n',
            b'event: response.output_text.delta\ndata: {"type": "response.output_text.delta", "delta": "Hel"}\n\n',
            b'event: response.completed\ndata: {"response": {"usage": %b}}\n\n' % json.dumps(USAGE).encode(),
        ],
    ),
    "/v1/messages": (
        {"messages": [{"role": "user", "content": "hello " * 20}], "max_tokens": 7, "system": "Be brief."},
        b'{"content": [], "usage": {"input_tokens": 36, "cache_read_input_tokens": 64, "output_tokens": 7}}',
    ),
    "/v1/embeddings": ({"input": "hello " * 20}, b'{"data": [], "usage": {"prompt_tokens": 100}}'),
}
CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "hello " * 20}]}


async def ask(proxy: str, body: Any, path: str = "/v1/chat/completions", **headers: str) -> tuple[int, str, Any]:
    """Return status, text and headers of a response; retry a busy gateway's 429 after its Retry-After."""
    async with asyncio.timeout(PATIENCE_S), aiohttp.ClientSession() as client:
        while True:
            data = io.BytesIO(body if isinstance(body, bytes) else json.dumps(body).encode())
            async with client.post(proxy + path, data=data, headers=headers) as answer:
                text = await answer.text()
                if answer.status != 429 or "gateway_late" not in text:
                    return answer.status, text, answer.headers
                await asyncio.sleep(float(answer.headers["Retry-After"]))


async def serves_other_apis(proxy: str, gateway: ServedGateway, engines: Sequence[ScriptedEngine]) -> None:
    """Check that decisions parse bodies of other APIs by their path, and that their responses are counted."""
    for engine in engines:
        engine.scripts = {path: answer for path, (_, answer) in OTHER_APIS.items()}
    for path, (body, _) in OTHER_APIS.items():
        status, text, _ = await ask(proxy, {"model": MODEL, **body}, path)
        assert status == 200, (path, text)
    await counted(gateway, completed=3, first_tokens=3, cached_tokens=128)
    assert (await ask(proxy, {"model": MODEL, "input": 7}, "/v1/responses"))[0] == 400


async def outlives_kept_connections(proxy: str, engine: ScriptedEngine) -> None:
    """Check that no client sees an error when an engine closes an idle connection as its request arrives."""
    engine.serves_once = True
    for _ in range(4):
        assert (await ask(proxy, CHAT))[0] == 200


async def takes_requests_to_ranks(proxy: str, engine: ScriptedEngine) -> None:
    """Check that each request reaches the rank of its decision, regardless of the client's header.

    The engine is both ranks of a gateway's pool.
    """
    for number in range(8):
        body = {**CHAT, "messages": [{"role": "user", "content": f"{number} " * 20}]}
        status, text, _ = await ask(proxy, body, **{"x-data-parallel-rank": "7"})
        assert status == 200, text
    assert {headers["x-data-parallel-rank"] for headers in engine.headers} == {"0", "1"}


async def lists_models(proxy: str) -> None:
    """Check that a client gets the served model and readiness through the proxy with any key."""
    async with asyncio.timeout(PATIENCE_S), aiohttp.ClientSession() as client:
        async with client.get(proxy + "/v1/models", headers={"authorization": "Bearer client-secret"}) as answer:
            assert (answer.status, [item["id"] for item in (await answer.json())["data"]]) == (200, [MODEL])
        async with client.get(proxy + "/health") as answer:
            assert answer.status == 200


async def counted(gateway: ServedGateway, **wanted: float) -> None:
    """Wait until the gateway has these counts: completed, failed, cancelled, first_tokens, cached_tokens."""
    async with asyncio.timeout(PATIENCE_S):
        while (seen := await counts(gateway)) != wanted:
            await asyncio.sleep(0.02)
    assert seen == wanted


async def counts(gateway: ServedGateway) -> dict[str, float]:
    """Return the same counts without zeros."""
    text = await gateway.metrics()
    ended = "completed|failed|cancelled"
    values = dict(re.findall(rf'headway_requests_total\{{outcome="({ended})",pool="pool"\}} (\S+)', text))
    for name, metric in (("first_tokens", "ttft_seconds_count"), ("cached_tokens", "cached_tokens_total")):
        value = re.search(rf'headway_{metric}\{{pool="pool"\}} (\S+)', text)
        values[name] = value[1] if value else "0"
    return {name: float(value) for name, value in values.items() if float(value)}
