from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.live.loopback_ports import free_port
from kvstore.keys.block_keys import token_block_keys
from simulator.engine_models.tokenizer import render_chat, tokenize
from simulator.replay.replay_options import ReplayOptions
from simulator.replay.replay_request import request_body, send_row
from simulator.replay.replay_summary import ReplayOutcome
from simulator.workloads.prompt_text import BLOCK_BYTES, prompt_text
from simulator.workloads.trace import BLOCK_TOKENS, TraceRow

_ROW = TraceRow(0, 600, 7, (1, 2), session_id="s1", priority=-1)
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_Ask = Callable[..., Awaitable[ReplayOutcome]]
_TEXT = b'data: {"choices":[{"delta":{"content":"hello"}}]}\n\n'
_USAGE = (
    b'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4,'
    b'"prompt_tokens_details":{"cached_tokens":5}}}\n\n'
)
_DONE = b"data: [DONE]\n\n"


@pytest.fixture
async def ask() -> AsyncIterator[_Ask]:
    """Send the row to a server that responds with `handler`."""
    runners: list[web.AppRunner] = []

    async def send(handler: _Handler, **fields: object) -> ReplayOutcome:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", handler)
        runner = web.AppRunner(app, access_log=None)
        runners.append(runner)
        await runner.setup()
        port = free_port()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        options = ReplayOptions(target=f"http://127.0.0.1:{port}", **fields)  # type: ignore[arg-type]
        timeout = aiohttp.ClientTimeout(total=options.timeout_s)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            return await send_row(session, request_body(_ROW, 0, options, ""), options)

    yield send
    for runner in runners:
        await runner.cleanup()


def _stream(*pieces: bytes) -> _Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
        return response

    return handler


def test_a_row_requests_exactly_its_output_tokens_streamed_with_usage() -> None:
    body = json.loads(request_body(_ROW, 0, ReplayOptions(target="http://x", model="m", max_input=512), ""))
    assert (body["model"], body["max_tokens"], body["ignore_eos"], body["stream"]) == ("m", 7, True, True)
    assert body["stream_options"] == {"include_usage": True}
    assert (body["session_id"], body["priority"]) == ("s1", -1)
    assert len(body["messages"][0]["content"]) == 512 * 4


def test_a_completion_uses_the_same_text_as_its_prompt() -> None:
    chat = json.loads(request_body(_ROW, 0, ReplayOptions(target="http://x"), ""))
    plain = json.loads(request_body(_ROW, 0, ReplayOptions(target="http://x", chat=False), ""))
    assert plain["prompt"] == chat["messages"][0]["content"]


async def test_a_stream_provides_ttft_and_usage_however_fragmented(ask: _Ask) -> None:
    whole = _TEXT + _USAGE + _DONE
    outcome = await ask(_stream(*[whole[i : i + 7] for i in range(0, len(whole), 7)]))
    assert (outcome.status, outcome.prompt_tokens, outcome.cached_tokens, outcome.output_tokens) == ("ok", 9, 5, 4)
    assert outcome.ttft_s is not None


async def test_an_empty_role_chunk_is_not_a_first_token(ask: _Ask) -> None:
    outcome = await ask(_stream(b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n', _DONE))
    assert (outcome.status, outcome.ttft_s, outcome.cached_tokens) == ("ok", None, None)


async def test_a_stream_without_its_end_is_failed(ask: _Ask) -> None:
    outcome = await ask(_stream(_TEXT, _USAGE))
    assert (outcome.status, outcome.error) == ("failed", "the stream ended before [DONE]")


async def test_an_error_inside_the_stream_is_failed(ask: _Ask) -> None:
    outcome = await ask(_stream(_TEXT, b'data: {"error": {"message": "engine died"}}\n\n', _DONE))
    assert (outcome.status, outcome.error) == ("failed", "error in the stream: engine died")


async def test_a_429_is_counted_as_rejected_and_not_retried(ask: _Ask) -> None:
    calls: list[int] = []

    async def busy(request: web.Request) -> web.StreamResponse:
        calls.append(1)
        return web.Response(status=429, headers={"Retry-After": "0"})

    outcome = await ask(busy)
    assert (outcome.status, outcome.error, len(calls)) == ("rejected", "HTTP 429", 1)


async def test_a_rejected_request_is_retried_if_enabled(ask: _Ask) -> None:
    calls: list[int] = []

    async def busy_at_first(request: web.Request) -> web.StreamResponse:
        calls.append(1)
        if len(calls) == 1:
            return web.Response(status=503, headers={"Retry-After": "0"})
        return await _stream(_TEXT, _DONE)(request)

    outcome = await ask(busy_at_first, retry=2)
    assert (outcome.status, len(calls)) == ("ok", 2)


async def test_other_statuses_are_failed_with_their_message(ask: _Ask) -> None:
    async def reject(request: web.Request) -> web.StreamResponse:
        return web.json_response({"error": {"message": "wrong key"}}, status=401)

    outcome = await ask(reject)
    assert (outcome.status, outcome.error) == ("failed", "HTTP 401: wrong key")


async def test_a_silent_server_is_failed_after_the_timeout(ask: _Ask) -> None:
    async def hang(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await request.read()
        import asyncio

        await asyncio.sleep(1)
        return response

    outcome = await ask(hang, timeout_s=0.2)
    assert (outcome.status, outcome.error) == ("failed", "no answer within 0.2 s")


async def test_a_missing_server_is_failed_with_its_own_error() -> None:
    options = ReplayOptions(target=f"http://127.0.0.1:{free_port()}")
    async with aiohttp.ClientSession() as session:
        outcome = await send_row(session, b"{}", options)
    assert (outcome.status, outcome.error) == ("failed", "cannot connect")


def _row(ids: list[int], length: int | None = None) -> TraceRow:
    return TraceRow(0, BLOCK_TOKENS * len(ids) if length is None else length, 1, tuple(ids))


def _shared(left: tuple[int, ...], right: tuple[int, ...]) -> int:
    return next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))


_IDS = st.lists(st.integers(0, 3), min_size=1, max_size=6)


@given(_IDS, _IDS)
@settings(max_examples=40)
def test_blocks_are_shared_exactly_as_far_as_ids_agree(left: list[int], right: list[int]) -> None:
    def keys(ids: list[int], number: int, *, chat: bool) -> tuple[int, ...]:
        text = prompt_text(_row(ids), number)
        return token_block_keys(1, tokenize(render_chat([("user", text)]) if chat else text), BLOCK_TOKENS)

    expected = _shared(tuple(left), tuple(right))
    for chat in (False, True):
        assert _shared(keys(left, 0, chat=chat), keys(right, 1, chat=chat)) == expected


@given(st.integers(1, 5000), st.integers(1, 5000))
def test_a_prompt_has_exactly_its_tokens(length: int, limit: int) -> None:
    row = _row(list(range(-(-length // BLOCK_TOKENS))), length)
    assert len(tokenize(prompt_text(row, 0))) == length
    assert len(tokenize(prompt_text(row, 0, max_tokens=limit))) == min(length, limit)


def test_a_shorter_limit_truncates_the_end() -> None:
    row = _row([1, 2, 3])
    assert prompt_text(row, 0).startswith(prompt_text(row, 0, max_tokens=700))


def test_text_is_readable_ascii() -> None:
    text = prompt_text(_row([10**12]), 0)
    assert text.isascii()
    assert text.isprintable()
    assert len(text) == BLOCK_BYTES


def test_editions_share_no_text() -> None:
    assert prompt_text(_row([1]), 0)[:32] != prompt_text(_row([1]), 0, edition="1.")[:32]


def test_blocks_without_an_id_differ_between_rows() -> None:
    row = _row([1], 3 * BLOCK_TOKENS)
    first, second = prompt_text(row, 0), prompt_text(row, 1)
    assert first[:BLOCK_BYTES] == second[:BLOCK_BYTES]
    assert first[BLOCK_BYTES : BLOCK_BYTES + 64] != second[BLOCK_BYTES : BLOCK_BYTES + 64]


def test_surplus_ids_do_not_affect_the_text() -> None:
    assert prompt_text(_row([1, 2, 3], BLOCK_TOKENS), 0) == prompt_text(_row([1], BLOCK_TOKENS), 0)
