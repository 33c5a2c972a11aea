"""The generating endpoints, in OpenAI's and Anthropic's formats: parse, admit, run, stream."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import time
import zlib
from array import array
from collections.abc import Callable
from typing import Literal, TypeVar

import msgspec

from kvstore.connector.engine_params import FIELD, KvOutcome
from kvstore.keys.block_keys import key_seed
from simulator.engine_models.simulated_engine import PromptSequence
from simulator.engine_server.answers.answer_shape import AnswerShape, WholeAnswer, usage
from simulator.engine_server.answers.messages_answer import MessagesAnswer
from simulator.engine_server.answers.openai_answer import Answer, AudioAnswer
from simulator.engine_server.answers.responses_answer import ResponsesAnswer
from simulator.engine_server.answers.token_stream import TokenStream, answer_text, natural_tokens
from simulator.engine_server.api_error import EngineApiError
from simulator.engine_server.asgi import (
    Receive,
    Scope,
    Send,
    gone,
    header,
    read_body,
    send_bytes,
    while_connected,
)
from simulator.engine_server.chat_conversion import messages_chat, responses_chat
from simulator.engine_server.engine_runtime import EngineRuntime
from simulator.engine_server.kv_transfer import KvTransfer
from simulator.engine_server.request_bodies import (
    ChatBody,
    CompletionBody,
    GenerationBody,
    KvTransferParams,
    MessagesBody,
    PlacedMedium,
    ResponsesBody,
    audio_body,
    audio_tokens,
    chat_tokens,
    completion_tokens,
    media_chat,
    parse_body,
    prompt_keys,
)

Leg = Literal["", "prefill", "decode"]
_Body = TypeVar("_Body", bound=GenerationBody)
_Shape = Callable[[str, str, int], AnswerShape]

_DEFAULT_COMPLETION_TOKENS = 16
"""Default number of output tokens of /v1/completions in OpenAI's API and vLLM."""
_STREAM_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]


class _Job(msgspec.Struct, frozen=True, gc=False):
    """One admitted request: its prompt size, response format, and text."""

    prompt_tokens: int
    answer: AnswerShape
    voice: int
    reason: str
    stream: TokenStream
    leg: Leg = ""
    outcome: KvOutcome | None = None

    def whole(self, end: int, offered: KvTransferParams | None = None) -> WholeAnswer:
        """Return the response with `end` tokens. Its kv_transfer_params state the results of loads and the offered
        prompt.
        """
        said = {} if offered is None else dict(msgspec.to_builtins(offered))
        if self.outcome is not None:
            said[FIELD] = msgspec.to_builtins(self.outcome)
        counts = usage(self.prompt_tokens, end, self.stream.cached_tokens)
        return WholeAnswer(answer_text(self.voice, 0, end), self.reason, counts, said or None)


class _Loaded(msgspec.Struct, frozen=True, gc=False):
    """The result of a request's load."""

    outcome: KvOutcome | None = None
    """None if there was no load instruction, a quiet one, or no node."""
    blocks: int = 0
    """Number of the prompt's leading blocks in the engine after the load; 0 if none was loaded."""


_NOTHING = _Loaded()


class Generation:
    """The generation endpoints of one engine."""

    def __init__(self, runtime: EngineRuntime, transfer: KvTransfer) -> None:
        self._runtime = runtime
        self._settings = runtime.settings
        self._transfer = transfer
        self._numbers = itertools.count()
        self._loading = 0
        """Requests whose blocks are being loaded from nodes."""

    async def completions(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to /v1/completions."""
        body = await self._body(receive, CompletionBody)
        wanted = body.wanted_tokens or _DEFAULT_COMPLETION_TOKENS
        await self._generate(scope, receive, send, body, completion_tokens(body.prompt), wanted, _completion)

    async def chat_completions(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to /v1/chat/completions."""
        body = await self._body(receive, ChatBody)
        chat = media_chat(body.messages, self._settings.media_tokens)
        # Media keep their offsets, which another template would shift.
        tokens = chat.tokens if chat.media else self._runtime.templated(chat.tokens)
        await self._generate(scope, receive, send, body, tokens, body.wanted_tokens, _chat, media=chat.media)

    async def responses(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to /v1/responses."""
        body = await self._body(receive, ResponsesBody)
        tokens = chat_tokens(responses_chat(body))
        await self._generate(scope, receive, send, body, tokens, body.wanted_tokens, _response)

    async def transcriptions(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to the audio API, whose request bodies are forms."""
        body = audio_body(await read_body(receive), header(scope, b"content-type") or "")
        self.require_model(body.model)
        task = scope["path"].rpartition("/")[2].removesuffix("s")

        def shape(name: str, model: str, _prompt_tokens: int) -> AnswerShape:
            return AudioAnswer("trsc-" + name, model, int(time.time()), task, body.response_format)

        await self._generate(scope, receive, send, body, audio_tokens(body.file), body.wanted_tokens, shape)

    async def messages(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to Anthropic's /v1/messages."""
        body = await self._body(receive, MessagesBody)
        tokens = chat_tokens(messages_chat(body))
        await self._generate(scope, receive, send, body, tokens, body.wanted_tokens, _message)

    async def _body(self, receive: Receive, kind: type[_Body]) -> _Body:
        """Read a body. Raise EngineApiError if it is invalid or names a model that this engine does not serve."""
        body = parse_body(await read_body(receive), kind)
        self.require_model(body.model)
        return body

    def require_model(self, model: str | None) -> None:
        """Raise EngineApiError 404 unless this engine serves `model`."""
        settings = self._settings
        if model is not None and model not in (settings.served_model, *settings.aliases, *settings.lora):
            raise EngineApiError(404, f"The model `{model[:200]}` does not exist.", "model")

    async def _generate(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        body: GenerationBody,
        tokens: array[int],
        wanted: int | None,
        shape: _Shape,
        media: tuple[PlacedMedium, ...] = (),
    ) -> None:
        self._admit(body, len(tokens), wanted)
        leg = await self._leg(receive, body, wanted)
        keys = self._keys(body, tokens, media)
        loaded = await self._load(receive, body, tokens, keys) if leg != "decode" else _NOTHING
        job = self._start(scope, body, tokens, keys, wanted, shape, leg, loaded, media)
        watcher = asyncio.ensure_future(_break_off_when_gone(receive, self._runtime, job.stream.request_id))
        try:
            if body.stream:
                await _stream(send, job, with_usage=body.wants_usage_chunk)
            else:
                await _answer(send, job, self._transfer, body.bootstrap_room)
        finally:
            watcher.cancel()
            # Harmless after the end; before it, the engine would compute on without a reader.
            self._runtime.abort(job.stream.request_id)
            with contextlib.suppress(asyncio.CancelledError):
                await watcher

    async def _leg(self, receive: Receive, body: GenerationBody, wanted: int | None) -> Leg:
        """Return the request's leg of a hand-off; a decode leg starts after its prompt has arrived.

        Raises EngineApiError if the prompt does not arrive, ClientGoneError if the client disconnects first.
        """
        asked = self._transfer.met(body.bootstrap_host, body.bootstrap_port, body.bootstrap_room)
        asked = asked or body.kv_transfer_params
        if asked is None or not (asked.do_remote_decode or asked.do_remote_prefill):
            return ""
        self._transfer.check(asked)
        if asked.do_remote_prefill:
            await while_connected(receive, self._transfer.fetch(asked))
            # A stop may have begun during the transfer.
            if self._runtime.closing:
                raise EngineApiError(503, "the engine is shutting down")
            return "decode"
        await while_connected(receive, self._transfer.stall())
        # vLLM's prefill leg asks for one token; SGLang's engines agree on a room instead.
        return "prefill" if (wanted == 1 or body.bootstrap_room is not None) and not body.stream else ""

    def _start(
        self,
        scope: Scope,
        body: GenerationBody,
        tokens: array[int],
        keys: tuple[int, ...],
        wanted: int | None,
        shape: _Shape,
        leg: Leg,
        loaded: _Loaded,
        media: tuple[PlacedMedium, ...],
    ) -> _Job:
        room = self._settings.max_model_len - len(tokens)
        voice = zlib.crc32(memoryview(tokens)[-64:], zlib.crc32(self._settings.seed))
        output = wanted or min(room, natural_tokens(voice))
        number = next(self._numbers)
        name = header(scope, b"x-request-id") or os.urandom(16).hex()
        lora = self._settings.adapter(body.model)
        answer = shape(name[:256], lora or self._settings.served_model, len(tokens))
        # A client may send one id twice, but the engine's ids are unique.
        sequence = PromptSequence(
            f"{name[:256]}-{number}", keys, len(tokens), output, body.priority or 0, loaded.blocks
        )
        reason = "length" if wanted else "stop"
        order = body.kv_transfer_params.headway if body.kv_transfer_params else None
        salt = body.cache_salt or ""
        stream = self._runtime.submit(
            sequence, tokens, reason, leg=leg, salt=salt, lora=lora, media=media, order=order, voice=voice
        )
        return _Job(len(tokens), answer, voice, reason, stream, leg, loaded.outcome)

    def _keys(self, body: GenerationBody, tokens: array[int], media: tuple[PlacedMedium, ...]) -> tuple[int, ...]:
        settings = self._settings
        seed = key_seed(settings.seed, settings.served_model, settings.adapter(body.model), body.cache_salt or "")
        return prompt_keys(seed, tokens, media, self._settings.profile.block_tokens)

    async def _load(self, receive: Receive, body: GenerationBody, tokens: array[int], keys: tuple[int, ...]) -> _Loaded:
        """Load the blocks that the request's load instruction allows. Do nothing without an instruction or a node."""
        order = body.kv_transfer_params.headway if body.kv_transfer_params else None
        store, model = self._runtime.store, self._runtime.model
        if order is None or store is None:
            return _NOTHING
        profile, salt = self._settings.profile, body.cache_salt or ""
        if order.prefetch_rank is not None:
            outcome = await while_connected(receive, store.prefetch(order, salt))
            self._runtime.take_in((), tokens, salt, store.prefetched.take_events())
            return _Loaded(outcome)
        order = msgspec.structs.replace(order, load_blocks=min(order.load_blocks, len(keys)))
        held = model.held_blocks(keys)
        if came := store.use_prefetched(tokens, held, salt):
            held = self._runtime.take_in(keys[: held + came], tokens, salt, store.prefetched.take_events())
        hits = (profile.hit_tokens(len(tokens), blocks) for blocks in (held, max(held, order.load_blocks)))
        without, with_load = (profile.prefill_s(len(tokens), hit) for hit in hits)
        # A load that takes longer than computing the same blocks would delay the answer.
        budget_s = (without - with_load) / self._settings.time_scale
        self._loading += 1
        try:
            outcome = await while_connected(receive, store.load(tokens, held, salt, order, budget_s))
        finally:
            self._loading -= 1
        if self._runtime.closing:
            raise EngineApiError(503, "the engine is shutting down")
        size = profile.block_tokens
        self._runtime.metrics.external(max(0, order.load_blocks - held) * size, outcome.loaded_blocks * size)
        blocks = held + outcome.loaded_blocks if outcome.loaded_blocks else 0
        if blocks:
            self._runtime.take_in(keys[:blocks], tokens, salt)
        return _Loaded(None if order.quiet else outcome, blocks)

    def _admit(self, body: GenerationBody, prompt_tokens: int, wanted: int | None) -> None:
        limit = self._settings.max_model_len
        if prompt_tokens + (wanted or 1) > limit:
            raise EngineApiError(
                400,
                f"This model's maximum context length is {limit} tokens; the prompt has {prompt_tokens} and "
                f"{wanted or 1} are to be generated. Shorten the prompt or lower max_tokens.",
                "input_tokens",
            )
        if body.n not in (None, 1):
            raise EngineApiError(400, "n must be 1: this engine gives one answer per request", "n")
        if self._runtime.closing:
            raise EngineApiError(503, "the engine is shutting down")
        # Requests that still load are not in the engine yet.
        if self._runtime.load + self._loading >= self._settings.max_queued:
            self._runtime.metrics.reject("queued_reqs")
            raise EngineApiError(503, f"{self._settings.max_queued} requests are queued already; try again later")


def _chat(name: str, model: str, prompt_tokens: int) -> AnswerShape:
    return Answer("chatcmpl-" + name, model, int(time.time()), chat=True)


def _completion(name: str, model: str, prompt_tokens: int) -> AnswerShape:
    return Answer("cmpl-" + name, model, int(time.time()), chat=False)


def _response(name: str, model: str, prompt_tokens: int) -> AnswerShape:
    return ResponsesAnswer("resp_" + name, model, int(time.time()))


def _message(name: str, model: str, prompt_tokens: int) -> AnswerShape:
    return MessagesAnswer("msg_" + name, model, prompt_tokens)


async def _stream(send: Send, job: _Job, *, with_usage: bool) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": _STREAM_HEADERS})
    stream, answer = job.stream, job.answer
    if preamble := answer.preamble():
        await send({"type": "http.response.body", "body": preamble, "more_body": True})
    while (burst := await stream.burst()) is not None:
        first, end = burst
        text = answer_text(job.voice, first, end)
        chunk = answer.opening() if first == 0 else b""
        if stream.finished:
            chunk += answer.ending(text, job.whole(end), with_usage=with_usage)
            await send({"type": "http.response.body", "body": chunk})
            return
        await send({"type": "http.response.body", "body": chunk + answer.piece(text), "more_body": True})


async def _answer(send: Send, job: _Job, transfer: KvTransfer, room: int | None) -> None:
    stream = job.stream
    while not stream.finished:
        if await stream.burst() is None:
            break
    if stream.broken:
        raise EngineApiError(503, "the engine stopped before the answer was complete")
    offered = transfer.offer(stream.request_id, room) if job.leg == "prefill" else None
    answer = job.answer
    await send_bytes(send, 200, answer.whole(job.whole(stream.generated, offered)), answer.content_type)


async def _break_off_when_gone(receive: Receive, runtime: EngineRuntime, request_id: str) -> None:
    await gone(receive)
    runtime.abort(request_id)
