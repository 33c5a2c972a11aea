"""Requests through a proxy in front of engines, and the counts of the gateway behind it."""

from __future__ import annotations

import asyncio
import io
import json
import re
from typing import Any

import aiohttp

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


async def counted(gateway: ServedGateway, **wanted: float) -> None:
    """Wait until the gateway has these counts: completed, failed, cancelled, first_tokens, cached_tokens."""
    seen: dict[str, float] = {}
    try:
        async with asyncio.timeout(PATIENCE_S):
            while (seen := await counts(gateway)) != wanted:
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"{seen} instead of {wanted}") from None


async def counts(gateway: ServedGateway) -> dict[str, float]:
    """Return the same counts without zeros."""
    text = await gateway.metrics()
    ended = "completed|failed|cancelled"
    values = dict(re.findall(rf'headway_requests_total\{{outcome="({ended})",pool="pool"\}} (\S+)', text))
    for name, metric in (("first_tokens", "ttft_seconds_count"), ("cached_tokens", "cached_tokens_total")):
        value = re.search(rf'headway_{metric}\{{[^}}]*pool="pool"\}} (\S+)', text)
        values[name] = value[1] if value else "0"
    return {name: float(value) for name, value in values.items() if float(value)}
