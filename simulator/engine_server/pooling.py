"""Endpoints that read prompts and generate no text: embeddings, scores, and rankings."""

from __future__ import annotations

import asyncio
import base64
import itertools
import struct
import zlib
from array import array
from collections.abc import Sequence
from typing import Any

from kvstore.keys.block_keys import key_seed, token_block_keys
from simulator.engine_models.simulated_engine import PromptSequence
from simulator.engine_models.tokenizer import tokenize
from simulator.engine_server.api_error import EngineApiError
from simulator.engine_server.asgi import Receive, Scope, Send, read_body, send_json, while_connected
from simulator.engine_server.engine_runtime import EngineRuntime
from simulator.engine_server.request_bodies import (
    EmbeddingBody,
    PoolingBody,
    RerankBody,
    ScoreBody,
    completion_tokens,
    parse_body,
)

DIMENSIONS = 8


class Pooling:
    """The pooling endpoints of one engine."""

    def __init__(self, runtime: EngineRuntime) -> None:
        self._runtime = runtime
        self._settings = runtime.settings
        self._numbers = itertools.count()

    async def embeddings(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to /v1/embeddings."""
        body = parse_body(await read_body(receive), EmbeddingBody)
        single = isinstance(body.input, str) or not body.input or isinstance(body.input[0], int)
        inputs = [body.input] if single else list(body.input)
        prompts = [completion_tokens(input_) for input_ in inputs]
        await self._read(receive, body, prompts)
        data = [
            {"object": "embedding", "index": number, "embedding": _embedding(prompt, body.encoding_format)}
            for number, prompt in enumerate(prompts)
        ]
        await send_json(send, 200, {"object": "list", "model": body.model, "data": data, "usage": _usage(prompts)})

    async def score(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to /score."""
        body = parse_body(await read_body(receive), ScoreBody)
        firsts, seconds = _listed(body.text_1), _listed(body.text_2)
        # As in vLLM, one text is compared with each on the other side.
        prompts = _pairs(firsts * len(seconds) if len(firsts) == 1 else firsts, seconds)
        await self._read(receive, body, prompts)
        data = [{"object": "score", "index": number, "score": _score(prompt)} for number, prompt in enumerate(prompts)]
        await send_json(send, 200, {"object": "list", "model": body.model, "data": data, "usage": _usage(prompts)})

    async def rerank(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to /rerank."""
        body = parse_body(await read_body(receive), RerankBody)
        prompts = _pairs([body.query] * len(body.documents), body.documents)
        await self._read(receive, body, prompts)
        order = sorted(range(len(prompts)), key=lambda number: -_score(prompts[number]))
        results = [
            {"index": item, "document": {"text": body.documents[item]}, "relevance_score": _score(prompts[item])}
            for item in order
        ]
        # As in vLLM, 0 means all.
        answer = {"model": body.model, "usage": _usage(prompts), "results": results[: body.top_n or None]}
        await send_json(send, 200, {"id": "rerank", **answer})

    async def _read(self, receive: Receive, body: PoolingBody, prompts: Sequence[array[int]]) -> None:
        """Compute the prompts in the engine; raise ClientGoneError if the client disconnects first."""
        if any(len(prompt) >= self._settings.max_model_len for prompt in prompts):
            raise EngineApiError(
                400, f"This model's maximum context length is {self._settings.max_model_len} tokens", "input"
            )
        lora = self._settings.adapter(body.model)
        seed = key_seed(self._settings.seed, self._settings.served_model, lora, body.cache_salt or "")
        streams = []
        for prompt in prompts:
            keys = token_block_keys(seed, prompt, self._settings.profile.block_tokens)
            sequence = PromptSequence(f"pool-{next(self._numbers)}", keys, len(prompt), 1, body.priority or 0)
            streams.append(self._runtime.submit(sequence, prompt, "stop", salt=body.cache_salt or "", lora=lora))
        try:
            # Each prompt makes one token, so its first burst is its end.
            await while_connected(receive, asyncio.gather(*(stream.burst() for stream in streams)))
            if any(stream.broken for stream in streams):
                raise EngineApiError(503, "the engine stopped before the answer was complete")
        finally:
            for stream in streams:
                self._runtime.abort(stream.request_id)


def _pairs(firsts: Sequence[str], seconds: Sequence[str]) -> list[array[int]]:
    if len(firsts) != len(seconds):
        raise EngineApiError(400, "send one text, or as many as there are on the other side", "text_1")
    return [tokenize(first + second) for first, second in zip(firsts, seconds, strict=True)]


def _listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def _score(prompt: array[int]) -> float:
    return zlib.crc32(memoryview(prompt)) / 2**32


def _embedding(prompt: array[int], encoding: str) -> list[float] | str:
    values = [zlib.crc32(memoryview(prompt), number) / 2**32 for number in range(DIMENSIONS)]
    # OpenAI's base64 form: little-endian 32-bit floats.
    return base64.b64encode(struct.pack(f"<{DIMENSIONS}f", *values)).decode() if encoding == "base64" else values


def _usage(prompts: Sequence[array[int]]) -> dict[str, Any]:
    tokens = sum(map(len, prompts))
    return {"prompt_tokens": tokens, "total_tokens": tokens}
