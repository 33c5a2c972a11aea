"""Content types of engine responses: they share the console's origin, so no engine can serve a page."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from typing_extensions import override

from tests.gateway.raw_http import RawConnection, post
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import KEY, MODEL, served

CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}]}


class OddEngine(ScriptedEngine):
    """Answer chats as the test sets it."""

    def __init__(self, status: int, body: bytes, **headers: str) -> None:
        super().__init__()
        self._answered = {"status": status, "body": body}
        self._headers = {name.replace("_", "-"): value for name, value in headers.items()}

    @override
    async def _complete(self, request: web.Request) -> web.StreamResponse:
        await request.read()
        return web.Response(**self._answered, headers=self._headers)


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        ("application/json", "application/json"),
        ("application/json; charset=utf-8", "application/json; charset=utf-8"),
        ("Audio/mpeg", "Audio/mpeg"),
        ("image/png", "image/png"),
        ("text/plain; charset=utf-8", "text/plain; charset=utf-8"),
        ("text/html", "application/octet-stream"),
        ("text/html; charset=utf-8", "application/octet-stream"),
        ("application/xhtml+xml", "application/octet-stream"),
        ("image/svg+xml", "application/octet-stream"),
        ("text/javascript", "application/octet-stream"),
        ("text/css", "application/octet-stream"),
        ("application/json, text/html", "application/octet-stream"),
        ("application/json; a=b, text/html", "application/octet-stream"),
        ("語", "application/octet-stream"),
        ("", "application/octet-stream"),
    ],
)
async def test_no_engine_response_is_a_page_or_a_script(tmp_path: Path, kind: str, shown: str) -> None:
    async with OddEngine(400, b"<script>", content_type=kind) as engine, served([engine.url], tmp_path) as gateway:
        headers = {"authorization": f"Bearer {KEY}"}
        async with gateway.client.post(gateway.url + "/v1/chat/completions", json=CHAT, headers=headers) as answer:
            assert (answer.status, await answer.read()) == (400, b"<script>")
            assert answer.headers.getall("content-type") == [shown]
            assert answer.headers.getall("x-content-type-options") == ["nosniff"]


async def test_a_non_latin_header_is_forwarded_unchanged(tmp_path: Path) -> None:
    odd = OddEngine(400, b"{}", content_type="application/json", cache_control="語")
    async with odd as engine, served([engine.url], tmp_path) as gateway:
        status, _, headers = await gateway.post("/v1/chat/completions", CHAT)
        assert (status, headers["cache-control"]) == (400, "語")


@pytest.mark.parametrize("status", [200, 400, 404])
@pytest.mark.parametrize("coding", ["gzip", "br", "identity, gzip"])
async def test_a_compressed_response_is_an_engine_fault(tmp_path: Path, status: int, coding: str) -> None:
    body = gzip.compress(b'{"choices": []}')
    odd = OddEngine(status, body, content_type="application/json", content_encoding=coding)
    async with odd as engine, served([engine.url], tmp_path) as gateway:
        answered, answer, _ = await gateway.post("/v1/chat/completions", CHAT)
        assert (answered, answer["error"]["type"]) == (502, "server_error")


async def test_another_engine_replaces_one_that_compresses(tmp_path: Path) -> None:
    odd = OddEngine(200, gzip.compress(b"{}"), content_type="application/json", content_encoding="gzip")
    async with odd as packing, ScriptedEngine() as plain, served([packing.url, plain.url], tmp_path) as gateway:
        for _ in range(4):
            assert (await gateway.post("/v1/chat/completions", CHAT))[0] == 200


async def test_a_response_marked_as_identity_is_forwarded(tmp_path: Path) -> None:
    odd = OddEngine(400, b'{"a": 1}', content_type="application/json", content_encoding="Identity")
    async with odd as engine, served([engine.url], tmp_path) as gateway:
        status, answer, headers = await gateway.post("/v1/chat/completions", CHAT)
        assert (status, answer, "content-encoding" in headers) == (400, {"a": 1}, False)


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/chat/completions", CHAT, 200),
        ("/v1/chat/completions", {}, 400),
        ("/v1/nothing", {}, 404),
        ("/api/v1/route", {"model": MODEL, "block_hashes": [1]}, 200),
        ("/api/v1/route?wait=false", {"model": MODEL, "block_hashes": [1]}, 200),
        ("/api/v1/route?wait=false", {"model": "none", "block_hashes": [1]}, 404),
        ("/api/v1/observe", b"\n", 400),
    ],
)
async def test_browsers_cannot_guess_the_type_of_a_response(tmp_path: Path, path: str, body: Any, status: int) -> None:
    async with ScriptedEngine() as engine, served([engine.url], tmp_path) as gateway:
        answered, _, headers = await gateway.post(path, body)
        assert (answered, headers["x-content-type-options"]) == (status, "nosniff")


async def test_browsers_cannot_guess_the_type_of_an_edge_response(tmp_path: Path) -> None:
    async with served([], tmp_path) as gateway:
        connection = await RawConnection.open(gateway.url)
        await connection.send(post("/v1/chat/completions", b"{}", host="evil.example"))
        status, headers, _ = await connection.answer()
        assert (status, headers["x-content-type-options"]) == (400, "nosniff")
        await connection.close()
