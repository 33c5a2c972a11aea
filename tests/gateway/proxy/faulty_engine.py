"""An engine that serves every endpoint in the form of its API, with one optional fault for all of them."""

from __future__ import annotations

import asyncio
import json
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from gateway.requests.formats.endpoints import CHAT, COMPLETIONS
from gateway.server.http.error_formats import MESSAGES
from tests.gateway.ports import listen

RESPONSES = "/v1/responses"
GENERATING = (CHAT, COMPLETIONS, RESPONSES, MESSAGES)
WHOLE_ONLY = ("/v1/embeddings", "/rerank", "/v1/score")
REASON = "the engine's own reason"
COMMENT = b": keep-alive\n\n"


def body_for(path: str, model: str, *, stream: bool = False) -> dict[str, Any]:
    """Return a small request body for this path."""
    bodies: dict[str, dict[str, Any]] = {
        COMPLETIONS: {"prompt": "hi", "max_tokens": 4},
        RESPONSES: {"input": "hi", "max_output_tokens": 4},
        "/v1/embeddings": {"input": "hi"},
        "/rerank": {"query": "hi", "documents": ["a", "b"]},
        "/v1/score": {"queries": "hi", "documents": ["a", "b"]},
    }
    body = bodies.get(path, {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4})
    return {"model": model, **body, **({"stream": True} if stream else {})}


def _event(value: dict[str, Any], kind: str = "") -> bytes:
    return (f"event: {kind}\n" if kind else "").encode() + b"data: " + json.dumps(value).encode() + b"\n\n"


def _usage(path: str) -> dict[str, Any]:
    if path in (RESPONSES, MESSAGES):
        return {"input_tokens": 10, "output_tokens": 2}
    return {"prompt_tokens": 10, "completion_tokens": 2}


def _stream_of(path: str) -> tuple[bytes, list[bytes], bytes]:
    """Return the events before the content of a stream, its content, and its end."""
    if path == CHAT:
        role = _event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
        content = [_event({"choices": [{"index": 0, "delta": {"content": text}}]}) for text in ("Hel", "lo")]
        return role, content, _event({"choices": [], "usage": _usage(path)}) + b"data: [DONE]\n\n"
    if path == COMPLETIONS:
        content = [_event({"choices": [{"index": 0, "text": text}]}) for text in ("Hel", "lo")]
        return b"", content, _event({"choices": [], "usage": _usage(path)}) + b"data: [DONE]\n\n"
    if path == RESPONSES:
        created = _event({"type": "response.created", "response": {"id": "r"}}, "response.created")
        kind = "response.output_text.delta"
        content = [_event({"type": kind, "delta": text}, kind) for text in ("Hel", "lo")]
        end = {"type": "response.completed", "response": {"usage": _usage(path)}}
        return created, content, _event(end, "response.completed")
    start = _event({"type": "message_start", "message": {"usage": {"input_tokens": 10}}}, "message_start")
    kind = "content_block_delta"
    content = [_event({"type": kind, "delta": {"type": "text_delta", "text": text}}, kind) for text in ("Hel", "lo")]
    return start, content, _event({"type": "message_stop"}, "message_stop")


class FaultyEngine:
    """An aiohttp server on loopback. Set `fault` to one of the names that `_answer` and `_stream` handle."""

    def __init__(self) -> None:
        self.listener = listen()
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.fault = ""
        self.calls = 0
        self.waits = asyncio.Event()
        """Streams wait for it after their first comment, where the fault is "slow"."""

    async def __aenter__(self) -> Self:
        app = web.Application()
        for path in ("/health", "/load", "/is_paused"):
            app.router.add_get(path, self._well)
        app.router.add_post("/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        await web.SockSite(self._runner, self.listener).start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    async def _well(self, _: web.Request) -> web.Response:
        return web.json_response({"server_load": 0, "is_paused": False})

    def _error(self, status: int) -> dict[str, Any]:
        return {"error": {"message": REASON, "type": "x", "code": status}}

    async def _answer(self, request: web.Request) -> web.StreamResponse:  # noqa: PLR0911 - a return for each fault
        body = json.loads(await request.read())
        if request.path == "/tokenize":
            return web.json_response({"tokens": [1, 2, 3], "count": 3})
        self.calls += 1
        if self.fault == "dies":
            return self._abort(request)
        if self.fault.isdigit():
            return web.json_response(self._error(int(self.fault)), status=int(self.fault))
        if self.fault == "html":
            return web.Response(text="<html>maintenance</html>", content_type="text/html")
        if body.get("stream"):
            return await self._stream(request)
        if self.fault.startswith("error_in_200"):
            return web.json_response(self._error(int(self.fault.rpartition("_")[2])))
        if self.fault == "no_json":
            return web.Response(text="Internal Server Error", content_type="application/json")
        return web.json_response({"id": "x", "choices": [{"text": "Hello"}], "usage": _usage(request.path)})

    def _abort(self, request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async def _end_with_error(
        self, request: web.Request, response: web.StreamResponse, status: int
    ) -> web.StreamResponse:
        named = {"type": "error"} if request.path in (RESPONSES, MESSAGES) else {}
        event = _event({**named, **self._error(status)}, "error" if named else "")
        await response.write(event + b"data: [DONE]\n\n")
        await response.write_eof()
        return response

    async def _stream(self, request: web.Request) -> web.StreamResponse:  # noqa: PLR0911 - a return for each fault
        before, content, end = _stream_of(request.path)
        response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        if self.fault:
            await response.write(COMMENT + before)
        if self.fault == "dies_after_comments":
            await asyncio.sleep(0.05)
            return self._abort(request)
        if self.fault.startswith("slow"):
            await self.waits.wait()
        if self.fault == "slow_then_dies":
            return self._abort(request)
        if self.fault == "slow_then_500":
            return await self._end_with_error(request, response, 500)
        if self.fault.startswith("error_in_200"):
            return await self._end_with_error(request, response, int(self.fault.rpartition("_")[2]))
        if self.fault == "ends_empty":
            await response.write_eof()
            return response
        await response.write((b"" if self.fault else before) + content[0])
        if self.fault == "dies_after_content":
            await asyncio.sleep(0.05)
            return self._abort(request)
        if self.fault == "error_after_content":
            await self.waits.wait()
            await response.write(_event(self._error(500)) + b"data: [DONE]\n\n")
            await response.write_eof()
            return response
        await response.write(b"".join(content[1:]) + end)
        await response.write_eof()
        return response
