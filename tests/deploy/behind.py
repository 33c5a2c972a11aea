"""What every proxy in front of engines is asked for, and how the gateway behind it is seen to have heard of it."""

from __future__ import annotations

import asyncio
import io
import json
import re
from typing import Any

import aiohttp

from tests.gateway.served_gateway import MODEL, ServedGateway

PATIENT_S = 180.0
CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "hello " * 20}]}


async def ask(proxy: str, body: Any, path: str = "/v1/chat/completions", **headers: str) -> tuple[int, str, Any]:
    """Return status, text and headers of an answer; a 429 of a busy gateway is asked again when it says."""
    async with asyncio.timeout(PATIENT_S), aiohttp.ClientSession() as client:
        while True:
            data = io.BytesIO(body if isinstance(body, bytes) else json.dumps(body).encode())
            async with client.post(proxy + path, data=data, headers=headers) as answer:
                text = await answer.text()
                if answer.status != 429 or "gateway_late" not in text:
                    return answer.status, text, answer.headers
                await asyncio.sleep(float(answer.headers["Retry-After"]))


async def lists_models(proxy: str) -> None:
    """Check that a client finds the served model and readiness behind the proxy, whatever key it sends."""
    async with asyncio.timeout(PATIENT_S), aiohttp.ClientSession() as client:
        async with client.get(proxy + "/v1/models", headers={"authorization": "Bearer client-secret"}) as answer:
            assert (answer.status, [each["id"] for each in (await answer.json())["data"]]) == (200, [MODEL])
        async with client.get(proxy + "/health") as answer:
            assert answer.status == 200


async def counted(gateway: ServedGateway, **wanted: float) -> None:
    """Wait until the gateway counts these: completed, failed, cancelled, first_tokens, cached_tokens."""
    async with asyncio.timeout(PATIENT_S):
        while (found := await counts(gateway)) != wanted:
            await asyncio.sleep(0.02)
    assert found == wanted


async def counts(gateway: ServedGateway) -> dict[str, float]:
    """Return what is not zero of the same."""
    text = await gateway.metrics()
    ended = "completed|failed|cancelled"
    found = dict(re.findall(rf'switchyard_requests_total\{{outcome="({ended})",pool="pool"\}} (\S+)', text))
    for name, metric in (("first_tokens", "ttft_seconds_count"), ("cached_tokens", "cached_tokens_total")):
        value = re.search(rf'switchyard_{metric}\{{pool="pool"\}} (\S+)', text)
        found[name] = value[1] if value else "0"
    return {name: float(value) for name, value in found.items() if float(value)}
