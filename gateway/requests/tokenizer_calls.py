"""Asks engines to tokenize prompts, and records which engine's tokenizer each prompt waited for."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Sequence
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from gateway.base.event_log import log_event
from gateway.pools.engines.health_probe import EngineAnswerError, EngineUnreachableError
from gateway.requests.formats.prompt import ChatPrompt, Prompt, TextPrompt

if TYPE_CHECKING:
    from gateway.base.loop_lag import LoopLag
    from gateway.pools.engines.live_engine import LiveEngine
    from gateway.pools.pool.live_pool import LivePool

KeyedT = TypeVar("KeyedT")

MAX_TOKENIZERS_ASKED = 2

Waits = tuple[tuple[str, float], ...]
"""Engines whose tokenizers a prompt waited for, in order, with the seconds of each wait."""


class TokenizerCall(msgspec.Struct, Generic[KeyedT], gc=False):
    """A call that equal prompts share. Waiters must shield its task.

    Mutable: (engine id, start, end) of each engine that was asked, in monotonic seconds; the end is inf until then.
    """

    task: asyncio.Task[KeyedT | None]
    asked: list[tuple[str, float, float]]

    def waits(self, since_s: float, lag: LoopLag) -> Waits:
        """Return the waits of a prompt since this time, without the gateway's own pauses, which are no engine's."""
        now, waits = monotonic(), list[tuple[str, float]]()
        for engine_id, asked_s, end_s in self.asked:
            begun_s, ended_s = max(asked_s, since_s), min(end_s, now)
            if ended_s > begun_s:
                waits.append((engine_id, max(0.0, ended_s - begun_s - lag.lost_s(begun_s, ended_s))))
        return tuple(waits)


class TokenizerCalls(Generic[KeyedT]):
    """Calls the tokenizer once for equal prompts that arrive together.

    `patience` is the share of a pool's TTFT objective after which a tokenizer is late. Mutable: the running calls, and
    the number of calls, by which engines take turns.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._under_way: dict[bytes, TokenizerCall[KeyedT]] = {}
        self._turn = 0

    def call(
        self, digest: bytes, pool: LivePool, prompt: Prompt, lora: str, keyed: Callable[[array[int]], KeyedT]
    ) -> TokenizerCall[KeyedT]:
        """Return the running call for the prompt with this digest, or begin one. `keyed` makes its result."""
        call = self._under_way.get(digest)
        if call is None:
            asked: list[tuple[str, float, float]] = []
            task = asyncio.create_task(self._tokenized(pool, prompt, lora, keyed, asked))
            call = self._under_way[digest] = TokenizerCall(task, asked)
            task.add_done_callback(lambda _: self._under_way.pop(digest, None))
        return call

    async def _tokenized(
        self,
        pool: LivePool,
        prompt: Prompt,
        lora: str,
        keyed: Callable[[array[int]], KeyedT],
        asked: list[tuple[str, float, float]],
    ) -> KeyedT | None:
        for engine in self._tokenizers(pool, lora):
            engine_id, begun_s = engine.entry.engine_id, monotonic()
            asked.append((engine_id, begun_s, inf))
            try:
                tokens = await _ask(engine, prompt, lora)
            except (EngineUnreachableError, EngineAnswerError):
                tokens = None
                log_event("tokenizer_failed", pool_id=pool.entry.pool_id, engine_id=engine_id)
            now = monotonic()
            asked[-1] = engine_id, begun_s, now
            late = now - begun_s > self._patience * pool.entry.policy.ttft_slo_s
            # While the loop lags, the answer may have waited in the socket.
            if tokens is None or (late and pool.lag.vouches(begun_s, now)):
                pool.progress.late_tokenizer(engine_id, now - begun_s)
            if tokens is not None:
                return keyed(tokens)
        return None

    def _tokenizers(self, pool: LivePool, lora: str) -> Sequence[LiveEngine]:
        """Return the engines to ask, starting with a different one each time."""
        able = pool.names.engines(lora) if lora else pool.engines.keys()
        engines = [engine for name, engine in pool.engines.items() if engine.breaker.accepts and name in able]
        self._turn += 1
        start = self._turn % len(engines) if engines else 0
        return (engines[start:] + engines[:start])[:MAX_TOKENIZERS_ASKED]


async def _ask(engine: LiveEngine, prompt: Prompt, lora: str) -> array[int]:
    if isinstance(prompt, ChatPrompt):
        return await engine.adapter.tokenize(prompt.messages, extra=prompt.template, model=lora)
    if isinstance(prompt, TextPrompt):
        extra = None if prompt.special_tokens else {"add_special_tokens": False}
        return await engine.adapter.tokenize(prompt.text, extra=extra, model=lora)
    raise TypeError(f"{type(prompt).__name__} needs no tokenizer")
