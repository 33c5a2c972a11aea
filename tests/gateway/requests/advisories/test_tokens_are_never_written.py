"""Page tokens, used in valid and invalid ways, appear in no file that the program writes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bench.live.live_program import LiveProgram, live_program
from tests.gateway.requests.advisories.test_advisories_end_to_end import ADVISORIES, TOKENS

pytestmark = [pytest.mark.processes, pytest.mark.thorough]

SESSION = "s-1"


async def every_way(running: LiveProgram) -> tuple[list[str], list[int]]:
    """Create and send tokens in every way; return them and the response statuses."""
    tokens, statuses = list[str](), list[int]()
    key = {"authorization": f"Bearer {running.secrets.api_key}"}

    async with aiohttp.ClientSession(running.url, timeout=aiohttp.ClientTimeout(total=60)) as client:

        async def send(method: str, path: str, body: Any = None, **headers: str) -> None:
            data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            async with client.request(method, path, data=data, headers=headers) as answer:
                await answer.read()
                statuses.append(answer.status)

        for _ in range(3):
            async with client.post(TOKENS, json={"session_id": SESSION}, headers=key) as answer:
                tokens.append((await answer.json())["token"])
        one, two, three = tokens
        for body in (
            {"token": one},
            {"token": one, "session_id": "s-2"},
            {"token": one + "x"},
            {"token": [one]},
            {"token": one, "expected_arrival_s": one},
            {"advisories": [{"session_id": one}], "token": one},
            {"session_id": one},
            json.dumps({"token": one}).encode()[:-1],
            b"\xff" + one.encode(),
        ):
            await send("POST", ADVISORIES, body)
        await send("POST", ADVISORIES, {"token": one}, origin="https://evil.example")
        for method in ("GET", "DELETE"):
            await send(method, f"{ADVISORIES}/{SESSION}", authorization=f"Bearer {two}")
            await send(method, f"{ADVISORIES}/s-2", authorization=f"Bearer {two}")
        for path in ("/v1/chat/completions", "/api/v1/route", TOKENS, "/api/v1/engines", "/"):
            await send("POST", path, {"model": "loopback-8b"}, authorization=f"Bearer {two}")
        for _ in range(150):
            await send("POST", ADVISORIES, {"token": three})
    return tokens, statuses


def test_no_file_holds_a_token(tmp_path: Path) -> None:
    with live_program(tmp_path, engines=True) as running:
        tokens, statuses = asyncio.run(every_way(running))
        running.stop()
        written = running.written()
    assert set(statuses) >= {202, 400, 401, 403}
    assert {Path(name).name for name in written} >= {"headway.log", "gateway.log", "web.log", "jobs.log"}
    assert any(data for name, data in written.items() if name.endswith("gateway.log"))
    for token in tokens:
        _, _, signature = token.partition(".")
        for secret in (token, signature):
            assert [name for name, data in written.items() if secret.encode() in data] == []
