"""The ASGI application of one simulated engine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from simulator.engine_models.tokenizer import detokenize, tokenize
from simulator.engine_server import kv_transfer, sglang
from simulator.engine_server.api_error import EngineApiError
from simulator.engine_server.asgi import (
    EngineClientGoneError,
    Receive,
    Scope,
    Send,
    read_body,
    send_bytes,
    send_json,
)
from simulator.engine_server.chat_conversion import messages_chat
from simulator.engine_server.engine_runtime import EngineRuntime
from simulator.engine_server.generation import Generation
from simulator.engine_server.kv_transfer import KvTransfer
from simulator.engine_server.pooling import Pooling
from simulator.engine_server.request_bodies import (
    CountTokensBody,
    DetokenizeBody,
    EngineFaultBody,
    FaultBody,
    TokenizeBody,
    chat_tokens,
    media_chat,
    parse_body,
)
from simulator.engine_server.settings import VERSION

_Handler = Callable[[Scope, Receive, Send], Awaitable[None]]
_Body = TypeVar("_Body", bound=msgspec.Struct)
_MESSAGES = "/v1/messages"
_SLEEP_MODE = ("/sleep", "/wake_up", "/is_sleeping")
_PROBED = frozenset({"/health", "/load", "/v1/loads", "/metrics"})
METRICS_TYPE = b"text/plain; version=0.0.4; charset=utf-8"


class EngineApp:
    """Routes requests by method and path. Errors have OpenAI's format, or Anthropic's at its paths."""

    def __init__(self, runtime: EngineRuntime) -> None:
        self.runtime = runtime
        self._settings = runtime.settings
        self.transfer = KvTransfer(runtime)
        self._generation = Generation(runtime, self.transfer)
        pooling = Pooling(runtime)
        self._started = int(time.time())
        self._routes: dict[str, tuple[str, _Handler]] = {
            "/v1/chat/completions": ("POST", self._generation.chat_completions),
            "/v1/completions": ("POST", self._generation.completions),
            "/v1/responses": ("POST", self._generation.responses),
            _MESSAGES: ("POST", self._generation.messages),
            _MESSAGES + "/count_tokens": ("POST", _answering(CountTokensBody, self._count_tokens)),
            "/v1/audio/transcriptions": ("POST", self._generation.transcriptions),
            "/v1/audio/translations": ("POST", self._generation.transcriptions),
            "/v1/embeddings": ("POST", pooling.embeddings),
            "/score": ("POST", pooling.score),
            "/v1/score": ("POST", pooling.score),
            "/rerank": ("POST", pooling.rerank),
            "/v1/rerank": ("POST", pooling.rerank),
            "/v1/models": ("GET", _reporting(self._models)),
            "/health": ("GET", self._health),
            "/load": ("GET", self._load),
            "/version": ("GET", _reporting(lambda: {"version": VERSION})),
            "/tokenize": ("POST", _answering(TokenizeBody, self._tokenize)),
            "/detokenize": ("POST", _answering(DetokenizeBody, self._detokenize)),
            "/kv_event_sources": ("GET", _reporting(self.event_sources)),
            "/metrics": ("GET", self._metrics),
            "/reset_prefix_cache": ("POST", _reporting(lambda: {"success": self.runtime.reset_cache()})),
            "/sleep": ("POST", _reporting(self.runtime.sleep)),
            "/wake_up": ("POST", _reporting(self.runtime.wake_up)),
            "/is_sleeping": ("GET", _reporting(lambda: {"is_sleeping": self.runtime.sleeps})),
            "/handoff_fault": ("POST", _answering(FaultBody, self._handoff_fault)),
        }
        if self._settings.flavor == "sglang":
            self._speak_sglang()
        if self._settings.faults:
            self._routes["/fault"] = ("POST", _answering(EngineFaultBody, self._fault))

    def _speak_sglang(self) -> None:
        """Replace the paths that only vLLM has with SGLang's."""
        reset = self._routes.pop("/reset_prefix_cache")
        for path in ("/load", "/v1/audio/translations", "/version", "/kv_event_sources", *_SLEEP_MODE):
            del self._routes[path]
        self._routes["/v1/loads"] = ("GET", _reporting(lambda: sglang.loads(self.runtime.model, self._settings)))
        self._routes["/server_info"] = ("GET", _reporting(lambda: sglang.server_info(self._settings)))
        self._routes["/flush_cache"] = reset

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        try:
            await self._serve(scope, receive, send)
        except EngineApiError as error:
            shape = error.anthropic_body if scope["path"].startswith(_MESSAGES) else error.body
            await send_json(send, error.status, shape())
        except EngineClientGoneError:
            return

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Before the key is required: vLLM's engines use a side channel without one.
        if scope["path"].startswith(kv_transfer.PATH) and scope["method"] == "POST":
            tokens = await self.transfer.give(scope["path"].removeprefix(kv_transfer.PATH))
            await send_json(send, 200, {"num_tokens": tokens})
            return
        self._require_key(scope)
        route = self._routes.get(scope["path"])
        if route is None:
            raise EngineApiError(404, f"no such path; this engine knows {', '.join(self._routes)}")
        method, handler = route
        if scope["method"] != method:
            raise EngineApiError(405, f"use {method} for {scope['path']}")
        if scope["path"] in _PROBED and self.runtime.probe_delay_s:
            await asyncio.sleep(self.runtime.probe_delay_s)
        await handler(scope, receive, send)

    def _require_key(self, scope: Scope) -> None:
        """Raise EngineApiError 401 if the API key is wrong; as in vLLM, only /v1 is protected."""
        key = self._settings.api_key
        authorization = dict(scope["headers"]).get(b"authorization")
        if key and scope["path"].startswith("/v1/") and authorization != f"Bearer {key}".encode():
            raise EngineApiError(401, "Unauthorized")

    def _models(self) -> dict[str, Any]:
        settings, own = self._settings, self._settings.served_model
        model = {"object": "model", "created": self._started, "owned_by": settings.flavor}
        base = {**model, "root": own, "parent": None, "max_model_len": settings.max_model_len}
        # As vLLM lists them: the adapter's path as root, and no length.
        adapter = {**model, "parent": own, "max_model_len": None}
        cards: list[dict[str, Any]] = [{"id": name, **base} for name in (own, *settings.aliases)]
        cards += [{"id": name, **adapter, "root": f"/adapters/{name}"} for name in settings.lora]
        return {"object": "list", "data": cards}

    async def _health(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.runtime.closing:
            raise EngineApiError(503, "the engine is shutting down")
        await send_bytes(send, 200, b"")

    async def _load(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send_bytes(send, 200, b'{"server_load":%d}' % self.runtime.reported_load)

    def _tokenize(self, body: TokenizeBody) -> dict[str, Any]:
        self._generation.require_model(body.model)
        if body.messages:
            tokens = self.runtime.templated(media_chat(body.messages, self._settings.media_tokens).tokens)
        elif body.prompt is not None:
            tokens = tokenize(body.prompt)
        else:
            raise EngineApiError(400, "send a prompt or messages", "prompt")
        answer = {"count": len(tokens), "max_model_len": self._settings.max_model_len, "tokens": tokens.tolist()}
        return {**answer, "token_strs": None}

    def _detokenize(self, body: DetokenizeBody) -> dict[str, Any]:
        self._generation.require_model(body.model)
        return {"prompt": detokenize(body.tokens)}

    def _count_tokens(self, body: CountTokensBody) -> dict[str, Any]:
        self._generation.require_model(body.model)
        return {"input_tokens": len(chat_tokens(messages_chat(body)))}

    def event_sources(self) -> dict[str, Any]:
        """Return the addresses of the KV events by rank; empty if none are published."""
        settings = self._settings
        if not settings.kv_events_port:
            return {}
        replay = f"tcp://{settings.host}:{settings.kv_replay_port}" if settings.kv_replay_port else None
        source = {
            "enable_kv_cache_events": True,
            "publisher": "zmq",
            "endpoint": f"tcp://{settings.host}:{settings.kv_events_port}",
            "replay_endpoint": replay,
            "buffer_steps": settings.buffer_steps,
            "topic": settings.topic,
        }
        return {str(settings.rank): source}

    async def _metrics(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send_bytes(send, 200, self.runtime.reported_metrics(), METRICS_TYPE)

    def _handoff_fault(self, body: FaultBody) -> dict[str, Any]:
        self.transfer.fault = body.fault
        return {"fault": body.fault}

    def _fault(self, body: EngineFaultBody) -> dict[str, Any]:
        self.runtime.set_fault(body.fault)
        return {"fault": body.fault}


def _reporting(value: Callable[[], object]) -> _Handler:
    """Return a handler that responds with a value as JSON."""

    async def handle(scope: Scope, receive: Receive, send: Send) -> None:
        await send_json(send, 200, value())

    return handle


def _answering(kind: type[_Body], answer: Callable[[_Body], object]) -> _Handler:
    """Return a handler that parses this kind of body and responds with a value as JSON."""

    async def handle(scope: Scope, receive: Receive, send: Send) -> None:
        await send_json(send, 200, answer(parse_body(await read_body(receive), kind)))

    return handle
