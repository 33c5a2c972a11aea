"""An engine scripted by the test: responds, fails, stalls or dies, and records its requests."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from tests.gateway.ports import listen


class ScriptedEngine:
    """An aiohttp server on loopback with vLLM's paths. Change its attributes to change its behavior."""

    def __init__(self) -> None:
        self.listener = listen()
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self._held: socket.socket | None = None
        self.bodies: list[dict[str, Any]] = []
        self.raw_bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.tokenize_calls = 0
        self.chunks = ["Hel", "lo"]
        self.answer_id, self.answer_model, self.finish_reason = "x", "", ""
        """Of its answers; empty: not stated."""
        self.pause_s = 0.0
        self.start_s = 0.0
        """Before the first token, or before an answer in one piece."""
        self.status = 200
        self.error_headers: dict[str, str] = {}
        self.error: dict[str, Any] = {"message": "engine says no", "type": "x"}
        self.cached_tokens: int | None = 64
        self.die_before_first_byte = False
        self.die_after_chunks: int | None = None
        self.serves_once = False
        """Each connection serves one request and is dropped when the next one arrives, as if idle for too long."""
        self._served: set[asyncio.Transport | None] = set()
        self.stall = False
        self.paused = False
        """Says so, and stalls, while its health is fine."""
        self.hands_over = True
        self.server_info: dict[str, Any] | None = None
        """SGLang's report of its arguments; None: it is no SGLang."""
        self.handoff_status = 200
        """Status of answers to legs of a hand-off."""
        self.tokenizer_status = 200
        self.models_status = 200
        self.cards: list[dict[str, Any]] = []
        """Entries of /v1/models."""
        self.on_request: Callable[[], object] = lambda: None
        self.on_disconnect: Callable[[], object] = lambda: None
        self.disconnected = asyncio.Event()
        self.received = asyncio.Event()
        self.separator = "\n\n"
        self.scripts: dict[str, bytes | str | list[bytes]] = {}
        """Answers of other paths: a whole JSON body, plain text, or the chunks of a stream."""
        self.goes_on = asyncio.Event()
        """Whether such a stream continues after its first chunk."""
        self.goes_on.set()

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64 << 20)
        app.router.add_get("/health", self._health)
        app.router.add_get("/load", self._load)
        app.router.add_get("/is_paused", self._is_paused)
        app.router.add_get("/server_info", self._server_info)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/tokenize", self._tokenize)
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_post("/v1/completions", self._complete)
        app.router.add_post("/{path:.*}", self._scripted)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        await web.SockSite(self._runner, self.listener).start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()
        if self._held is not None:
            self._held.close()

    async def stop(self) -> None:
        """Stop listening and drop all connections; the port stays reserved against other tests."""
        port = self.listener.getsockname()[1]
        await self._runner.cleanup()
        self._held = socket.socket()
        # Its last connections may linger; once bound, no other process may share the port.
        self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._held.bind(("127.0.0.1", port))
        self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def _is_paused(self, _: web.Request) -> web.Response:
        return web.json_response({"is_paused": self.paused})

    async def _server_info(self, _: web.Request) -> web.Response:
        return web.json_response(self.server_info or {}, status=200 if self.server_info else 404)

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": self.cards}, status=self.models_status)

    async def _load(self, _: web.Request) -> web.Response:
        return web.json_response({"server_load": 0})

    async def _tokenize(self, request: web.Request) -> web.StreamResponse:
        self.tokenize_calls += 1
        if self.tokenizer_status != 200:
            return web.Response(status=self.tokenizer_status)
        body = await request.json()
        text = body["prompt"] if "prompt" in body else "".join(str(item["content"]) for item in body["messages"])
        return web.json_response({"tokens": list(text.encode()), "count": len(text)})

    async def _scripted(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        self.raw_bodies.append(raw)
        self.bodies.append({} if request.content_type == "multipart/form-data" else json.loads(raw))
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        self.received.set()
        script = self.scripts.get(request.path)
        if script is None or self.status != 200:
            error = {"error": {"message": "engine says no", "type": "x", "code": 404}}
            return web.json_response(error, status=404 if self.status == 200 else self.status)
        if isinstance(script, bytes):
            return web.Response(body=script, content_type="application/json")
        if isinstance(script, str):
            return web.Response(text=script)
        response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        for number, chunk in enumerate(script):
            if self.die_after_chunks is not None and number >= self.die_after_chunks:
                assert request.transport is not None
                request.transport.abort()
                return response
            await response.write(chunk)
            await self.goes_on.wait()
        await response.write_eof()
        return response

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        body = json.loads(raw)
        self.raw_bodies.append(raw)
        self.bodies.append(body)
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        self.received.set()
        self.on_request()
        try:
            return await self._answer(request, body)
        except (asyncio.CancelledError, ConnectionError):
            self.disconnected.set()
            self.on_disconnect()
            raise

    async def _answer(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        used = request.transport in self._served
        self._served.add(request.transport)
        if self.die_before_first_byte or (self.serves_once and used):
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        if self.status != 200:
            error = {"error": {**self.error, "code": self.status}}
            return web.json_response(error, status=self.status, headers=self.error_headers)
        transfer = body.get("kv_transfer_params")
        if transfer is not None and self.handoff_status != 200:
            return web.json_response({"error": {"message": "no KV", "type": "x"}}, status=self.handoff_status)
        if self.stall or self.paused:
            await asyncio.sleep(60)
        await asyncio.sleep(self.start_s)
        if body.get("stream"):
            return await self._stream(request, body)
        await asyncio.sleep(self.pause_s)
        answer = self._part({"message": {"content": "".join(self.chunks)}}, ends=True)
        if transfer is not None and transfer.get("do_remote_decode") and self.hands_over:
            answer["kv_transfer_params"] = {
                "do_remote_prefill": True,
                "remote_url": self.url,
                "remote_block_ids": [[7]],
            }
        return web.json_response({**answer, "usage": self._usage()})

    async def _stream(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        for number, text in enumerate(self.chunks):
            if self.die_after_chunks is not None and number >= self.die_after_chunks:
                assert request.transport is not None
                request.transport.abort()
                return response
            await self._event(response, self._part({"delta": {"content": text}}, ends=number == len(self.chunks) - 1))
            await asyncio.sleep(self.pause_s)
        if (body.get("stream_options") or {}).get("include_usage"):
            await self._event(response, {"id": "x", "choices": [], "usage": self._usage()})
        await response.write(f"data: [DONE]{self.separator}".encode())
        await response.write_eof()
        return response

    def _part(self, content: dict[str, Any], *, ends: bool) -> dict[str, Any]:
        choice = {
            "index": 0,
            **content,
            **({"finish_reason": self.finish_reason} if ends and self.finish_reason else {}),
        }
        return {
            "id": self.answer_id,
            **({"model": self.answer_model} if self.answer_model else {}),
            "choices": [choice],
        }

    async def _event(self, response: web.StreamResponse, event: dict[str, Any]) -> None:
        await response.write(f"data: {json.dumps(event)}{self.separator}".encode())

    def _usage(self) -> dict[str, Any]:
        usage: dict[str, Any] = {"prompt_tokens": 100, "completion_tokens": 2, "total_tokens": 102}
        if self.cached_tokens is not None:
            usage["prompt_tokens_details"] = {"cached_tokens": self.cached_tokens}
        return usage
