"""Content types of engine responses: they share the console's origin, so no engine can serve a page.

Timeouts of an attempt, derived from the request and its engine's history.
"""

from __future__ import annotations

import gzip
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from typing_extensions import override

from gateway.pools.engines.engine_progress import PREFILL_SHARE, STARTS, EngineProgress
from gateway.proxy.attempt import ASSUMED_TPOT_S, GENEROUS, RelaySettings
from gateway.proxy.forwarded_request import ForwardedRequest
from gateway.requests.formats.endpoints import BY_PATH
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


SETTINGS = RelaySettings(answer_s=100.0, hang_s=30.0)
CONTEXT = 4096


def pool(progress: EngineProgress) -> Any:
    return SimpleNamespace(
        progress=SimpleNamespace(engine=lambda _name: progress), entry=SimpleNamespace(max_prompt_tokens=CONTEXT)
    )


def request(max_tokens: int = 0, path: str = "/v1/chat/completions") -> ForwardedRequest:
    return ForwardedRequest(BY_PATH[path], b"{}", {}, False, False, max_tokens)


def shown(start_s: float, tokens: int, answer_s: float) -> EngineProgress:
    """Return the progress of an engine that has served one stream like this."""
    progress = EngineProgress()
    progress.dispatched("a", 1.0, 0.0)
    progress.first_token("a", start_s)
    progress.completed("a", tokens, start_s + answer_s)
    return progress


@pytest.mark.parametrize(
    ("asked", "progress", "whole_s"),
    [
        (10, EngineProgress(), 100.0),
        (1000, EngineProgress(), GENEROUS * 1000 * ASSUMED_TPOT_S),
        (0, EngineProgress(), GENEROUS * CONTEXT * ASSUMED_TPOT_S),
        (1000, shown(40.0, 101, 50.0), GENEROUS * (40.0 + 1000 * 0.5)),
    ],
    ids=["the setting", "tokens", "all that fit", "a slow engine"],
)
def test_the_total_timeout_is_the_setting_or_generous_for_the_request(
    asked: int, progress: EngineProgress, whole_s: float
) -> None:
    limits = SETTINGS.limits(pool(progress), "e", request(asked))
    assert limits.whole_s == pytest.approx(whole_s)
    assert limits.start_s == inf


def test_a_prompt_with_a_long_prefill_adds_its_time() -> None:
    limits = SETTINGS.limits(pool(EngineProgress()), "e", request(10), 200.0)
    assert limits.whole_s == pytest.approx(GENEROUS * (200.0 + 10 * ASSUMED_TPOT_S))


def test_requests_that_generate_nothing_use_the_setting() -> None:
    assert SETTINGS.limits(pool(EngineProgress()), "e", request(0, "/v1/embeddings")).whole_s == 100.0


def test_a_leg_must_start_before_its_engine_counts_as_hung() -> None:
    slow = shown(40.0, 101, 50.0)
    assert SETTINGS.limits(pool(EngineProgress()), "e", request(), leg=True).start_s == 30.0
    assert SETTINGS.limits(pool(slow), "e", request(), 10.0, leg=True).start_s == STARTS * 40.0 + PREFILL_SHARE * 10.0


def test_non_streaming_responses_also_teach_the_time_per_token() -> None:
    progress = EngineProgress()
    progress.dispatched("a", 1.0, 0.0)
    progress.whole("a")
    progress.completed("a", 101, 50.0)
    assert progress.tpot_s == pytest.approx(0.5)
    assert progress.counts(50.0, 0).tpot_s is None, "speed is judged by streams alone"
