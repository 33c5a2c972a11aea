"""Only pages of allowed origins can call the inference API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from gateway.server.http.cors import read_origins
from gateway.server.http.edge import EdgeSettings
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import MODEL, ServedGateway, served

PAGE = "https://app.example.com"
ASKS = {
    "Origin": PAGE,
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization, content-type, x-stainless-os",
}
PATHS = ("/v1/chat/completions", "/v1/models", "/v1/audio/transcriptions", "/rerank", "/pooling", "/api/v1/route")
ALLOW = "access-control-allow-origin"


@pytest.fixture(params=[(PAGE,), ("*",)], ids=["named", "any"])
def origins(request: pytest.FixtureRequest) -> tuple[str, ...]:
    return request.param


@pytest.fixture
async def gateway(origins: tuple[str, ...], tmp_path: Path) -> AsyncIterator[ServedGateway]:
    async with (
        ScriptedEngine() as engine,
        served([engine.url], tmp_path, edge=EdgeSettings(cors_origins=origins)) as gateway,
    ):
        yield gateway


async def options(gateway: ServedGateway, path: str, **headers: str) -> aiohttp.ClientResponse:
    async with gateway.client.options(gateway.url + path, headers={**ASKS, **headers}) as response:
        await response.read()
        return response


@pytest.mark.parametrize("path", PATHS)
async def test_a_preflight_needs_no_key(gateway: ServedGateway, path: str, origins: tuple[str]) -> None:
    answer = await options(gateway, path)
    assert answer.status == 204
    assert answer.headers[ALLOW] == ("*" if origins == ("*",) else PAGE)
    assert answer.headers["access-control-allow-methods"] == "GET, POST"
    assert answer.headers["access-control-allow-headers"] == ASKS["Access-Control-Request-Headers"]
    assert "access-control-allow-credentials" not in answer.headers
    assert ("vary" in answer.headers) == (origins != ("*",))


async def test_responses_and_errors_carry_cors_headers(gateway: ServedGateway) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "x"}]}
    route = {"model": MODEL, "token_ids": [1], "wait": False}
    big = b"x" * (65 << 20)
    for path, sent, key, status in (
        ("/v1/chat/completions", body, None, 401),
        ("/v1/chat/completions", big, None, 413),
        ("/v1/nope", body, None, 404),
    ):
        answered, _, headers = await gateway.post(path, sent, key=key, headers={"origin": PAGE})
        assert (answered, ALLOW in headers) == (status, True)
    for path, sent in (("/v1/chat/completions", body), ("/api/v1/route", route)):
        answered, _, headers = await gateway.post(path, sent, headers={"origin": PAGE})
        assert (answered, ALLOW in headers) == (200, True)
        assert "x-headway-decision" in headers["access-control-expose-headers"]


async def test_a_disallowed_origin_gets_the_name_of_the_setting(tmp_path: Path) -> None:
    edge = EdgeSettings(cors_origins=(PAGE,))
    async with ScriptedEngine() as engine, served([engine.url], tmp_path, edge=edge) as gateway:
        answer = await options(gateway, "/v1/chat/completions", Origin="https://other.example.com")
        assert (answer.status, answer.headers.get(ALLOW), answer.headers["vary"]) == (403, None, "Origin")
        _, _, headers = await gateway.post("/v1/chat/completions", {}, headers={"origin": "https://other.example.com"})
        assert ALLOW not in headers


async def test_console_paths_allow_no_other_origin(gateway: ServedGateway) -> None:
    for path in ("/", "/api/v1/pools", "/metrics"):
        assert ALLOW not in (await options(gateway, path)).headers


async def test_no_origin_is_allowed_by_default(tmp_path: Path) -> None:
    async with ScriptedEngine() as engine, served([engine.url], tmp_path) as gateway:
        answer = await options(gateway, "/v1/chat/completions")
        assert (answer.status, ALLOW in answer.headers) == (403, False)


def test_origins_are_normalized_as_browsers_send_them() -> None:
    assert read_origins(["https://App.example.com/", " http://localhost:3000", "*", ""], "X") == (
        "https://app.example.com",
        "http://localhost:3000",
        "*",
    )
    for wrong in ("app.example.com", "https://app.example.com/path", "https://", "https://a b"):
        with pytest.raises(ValueError, match="is not an origin"):
            read_origins([wrong], "X")
