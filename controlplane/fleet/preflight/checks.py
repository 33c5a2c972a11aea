"""Checks one engine before it serves, step by step, and reports problems with their fixes.

Needs no database. Every step takes at most STEP_S.
"""

from __future__ import annotations

import asyncio
import secrets
import string
import time
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import aiohttp

from controlplane.fleet.engine_url import EngineUrlRules, RejectedUrlError, check_engine_url, check_kv_endpoint
from controlplane.fleet.preflight.engine import EngineUnderTest
from controlplane.fleet.preflight.engine_flags import block_size_flag, events_flag
from controlplane.fleet.preflight.events import HANDSHAKE_S, AnnouncedBlocks, EventSubscriber
from controlplane.fleet.preflight.steps import FAILED, OK, SKIPPED, Step
from controlplane.platform.format import some_names
from gateway.pools.engines.health_probe import EngineAnswerError, EngineUnreachableError
from kvstore.keys.block_keys import key_seed, token_block_keys
from routing.values.counted import count

STEP_S = 25.0
"""Time limit of one step, enough to tokenize and complete two texts and receive their events."""
ANSWER_S = 2.0
SETTLE_S = 0.1
"""Time for a subscription to reach the publisher after the handshake."""
EVENTS_S = 3.0
PROBES = 2
"""Maximum number of texts sent. The first may be sent before the subscription is effective."""
PROBE_BLOCKS = 2
MAX_PROBE_CHARS = 2 << 20
_LISTED_MODELS = 5
_NARROW = "\u202f"


@dataclass(frozen=True, slots=True)
class PreflightSubject:
    """The engine to check, and its pool's requirements."""

    url: str
    """URL as entered by the operator, for use in sentences."""
    connect_url: str
    served_model: str
    exact: bool
    """Whether the pool computes keys from tokens and uses the engines' KV events."""
    block_tokens: int
    max_prompt_tokens: int
    alone: bool = False
    """Whether no other engine of the pool is in use. The pool then adopts this engine's block size."""
    events_endpoint: str = ""
    replay_endpoint: str = ""
    revision: int = 0
    """Revision of the stored engine when the check began."""
    rules: EngineUrlRules = field(default_factory=lambda: EngineUrlRules(()))
    """Address rules of the pool's engines."""
    key_variable: str = ""
    """Name of the environment variable with the engine's API key."""
    rank: int | None = None
    """The data-parallel rank to check; None: the whole engine."""


@dataclass(frozen=True, slots=True)
class EventSource:
    """The event sockets that a preflight used."""

    endpoint: str = ""
    replay_endpoint: str = ""
    discovered: bool = False
    """Whether the engine reported the sockets. False: they are set in the topology."""


class PreflightFailedError(Exception):
    """A step failed. The exception contains the problem and its fix."""

    def __init__(self, sentence: str, remedy: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.remedy = remedy


class EnginePreflight:
    """One preflight. Mutable state: `source` and `block_tokens`, which the steps with these names determine."""

    def __init__(self, subject: PreflightSubject, session: aiohttp.ClientSession, *, bearer: str = "") -> None:
        self.source = EventSource(subject.events_endpoint, subject.replay_endpoint)
        self.block_tokens = subject.block_tokens
        self._subject = subject
        self._rules = subject.rules
        self._engine = EngineUnderTest(
            session,
            subject.connect_url,
            served_model=subject.served_model,
            bearer=bearer,
            timeout_s=ANSWER_S,
            rank=subject.rank,
        )
        self._steps: tuple[tuple[str, Callable[[], Awaitable[Step]]], ...] = (
            ("reachable", self._reachable),
            ("healthy", self._healthy),
            ("model", self._model),
            ("context", self._context),
            ("block_size", self._block_size),
            ("events", self._events),
            ("keys", self._keys),
        )

    async def run(self) -> AsyncIterator[Step]:
        """Yield each step when it is decided. The first failure ends the preflight."""
        for key, check in self._steps:
            step = await self._decided(key, check)
            yield step
            if step.state == FAILED:
                return

    async def _decided(self, key: str, check: Callable[[], Awaitable[Step]]) -> Step:
        try:
            async with asyncio.timeout(STEP_S):
                return await check()
        except TimeoutError:
            sentence = f"The engine needs more than {STEP_S:g}{_NARROW}s for this step."
            return Step(key=key, state=FAILED, sentence=sentence, remedy="Check again when it is less busy.")
        except PreflightFailedError as failure:
            return Step(key=key, state=FAILED, sentence=failure.sentence, remedy=failure.remedy)
        except EngineUnreachableError as error:
            return Step(
                key=key, state=FAILED, sentence=f"{self._subject.url} closed the connection: {error}.", remedy=_AGAIN
            )
        except EngineAnswerError as error:
            remedy = self._other_key() if error.status in (401, 403) else _NOT_AN_ENGINE
            return Step(key=key, state=FAILED, sentence=f"{str(error).capitalize()}.", remedy=remedy)

    def _other_key(self) -> str:
        variable = self._subject.key_variable
        if not variable:
            return (
                "The key was not sent: the engine's address is outside the pool's engine networks. Allow its "
                "network there."
            )
        return f"The engine requires another key: set {variable} to its key."

    async def _reachable(self) -> Step:
        url = self._subject.url
        try:
            check_engine_url(self._subject.connect_url, self._rules)
        except RejectedUrlError as error:
            raise PreflightFailedError(
                f"Connecting to {url} is not allowed: {error}.", "Enter another address."
            ) from None
        started = time.monotonic()
        try:
            await self._engine.health()
        except EngineUnreachableError as error:
            cause = f"connection timed out after {ANSWER_S:g}{_NARROW}s" if error.timed_out else str(error)
            raise PreflightFailedError(
                f"Unreachable at {url}: {cause}.",
                "Check that the engine listens on this address and that this host can reach it.",
            ) from None
        except EngineAnswerError:
            # A server answers; the next step checks whether it is healthy.
            pass
        taken_ms = max(1, round((time.monotonic() - started) * 1000))
        return Step(key="reachable", state=OK, sentence=f"Reachable in {taken_ms}{_NARROW}ms.")

    async def _healthy(self) -> Step:
        try:
            await self._engine.health()
        except EngineAnswerError as error:
            if error.status in (401, 403):
                raise
            raise PreflightFailedError(
                f"The health check fails: {error}.",
                "Wait until it has loaded its model, then check again. Its log shows progress.",
            ) from None
        return Step(key="healthy", state=OK, sentence="The health check passes.")

    async def _model(self) -> Step:
        wanted = self._subject.served_model
        served = [card.id for card in await self._engine.models()]
        if wanted in served:
            return Step(key="model", state=OK, sentence=f"Serves {wanted}.")
        shown = some_names([name[:80] for name in served], _LISTED_MODELS) or "no model"
        raise PreflightFailedError(
            f"The engine serves {shown}; the pool's model is {wanted}.",
            f"Start it with --served-model-name {wanted}, or register it in a pool of its model.",
        )

    async def _context(self) -> Step:
        wanted = self._subject.max_prompt_tokens
        cards = await self._engine.models()
        reported = next((card.max_model_len for card in cards if card.id == self._subject.served_model), None)
        if reported is None:
            return Step(key="context", state=SKIPPED, sentence="The engine does not report its context length.")
        if reported < wanted:
            raise PreflightFailedError(
                f"Its context length is {count(reported, 'token')}; the pool accepts prompts of up to {wanted:,}.",
                f"Start it with --max-model-len {wanted} or more, or lower the pool's prompt limit to {reported}.",
            )
        return Step(
            key="context", state=OK, sentence=f"Context length {count(reported, 'token')}, the pool needs {wanted:,}."
        )

    async def _block_size(self) -> Step:
        if not self._subject.exact:
            return Step(key="block_size", state=SKIPPED, sentence="The pool's blocks are bytes of text, not tokens.")
        metrics, info = await self._engine.sizes()
        ranks = info.dp_size if info else metrics.ranks if metrics else 1
        if ranks > 1:
            raise PreflightFailedError(
                f"It has {ranks} data-parallel ranks behind one address, each with its own cache.",
                "Start each rank as a separate engine."
                if info
                else f"Register each rank: {self._subject.url}#0 to {self._subject.url}#{ranks - 1}.",
            )
        remark = "" if metrics else "Its metrics are not read: its load is what is dispatched to it."
        wanted, reported = (
            self._subject.block_tokens,
            info.page_size if info else metrics.block_size if metrics else None,
        )
        if reported is None:
            sentence = "It does not report a block size; the last step checks it."
            return Step(key="block_size", state=SKIPPED, sentence=sentence, remedy=remark)
        if reported != wanted and self._subject.alone:
            self.block_tokens = reported
            sentence = f"Block size {reported}, which becomes the pool's: no other engine of it is in use."
            return Step(key="block_size", state=OK, sentence=sentence, remedy=remark)
        if reported != wanted:
            raise PreflightFailedError(
                f"Its blocks have {count(reported, 'token')}, the pool's {wanted}.",
                f"Start it with {block_size_flag(wanted)}, or register it in a pool with blocks of {reported}.",
            )
        return Step(key="block_size", state=OK, sentence=f"Block size {reported}, same as the pool's.", remedy=remark)

    async def _events(self) -> Step:
        if not self._subject.exact:
            return Step(key="events", state=SKIPPED, sentence="The pool's index is built from its own dispatches.")
        if not self.source.endpoint:
            self.source = await self._discovered()
        if self.source.replay_endpoint:
            self._checked_endpoint(self.source.replay_endpoint)
        async with EventSubscriber(self._checked_endpoint(self.source.endpoint)) as ear:
            if not await ear.connect(HANDSHAKE_S):
                raise PreflightFailedError(
                    f"No publisher answers at {self.source.endpoint} within {HANDSHAKE_S:g}{_NARROW}s.",
                    "Check the port in its --kv-events-config, and that this host can reach it.",
                )
        how = "found" if self.source.discovered else "answers"
        remark = "" if self.source.replay_endpoint else "No replay endpoint: missed events cannot be recovered."
        return Step(key="events", state=OK, sentence=f"Event socket {self.source.endpoint} {how}.", remedy=remark)

    async def _discovered(self) -> EventSource:
        reported, _ = await self._engine.event_sources((self._subject.rank or 0) + 1)
        sources = [item for item in reported if self._subject.rank in (None, item.data_parallel_rank)]
        if not sources:
            raise PreflightFailedError(
                "The engine reports no KV event socket, and none is entered.",
                f"Add this flag to its start command, or enter its event endpoint: {events_flag(self._subject.url)}",
            )
        first = min(sources, key=lambda source: source.data_parallel_rank)
        return EventSource(first.endpoint, first.replay_endpoint, discovered=True)

    def _checked_endpoint(self, endpoint: str) -> str:
        """Return the address to connect to, after checking it: an engine may report any address."""
        try:
            return check_kv_endpoint(endpoint, self._rules).connect_url
        except RejectedUrlError as error:
            raise PreflightFailedError(
                f"Connecting to the event endpoint {endpoint[:200]} is not allowed: {error}.",
                "Enter an endpoint that this host can reach.",
            ) from None

    async def _keys(self) -> Step:
        if not self._subject.exact:
            return await self._answers()
        seed = key_seed(secrets.token_bytes(16), self._subject.served_model)
        announced: AnnouncedBlocks | None = None
        async with EventSubscriber(self._checked_endpoint(self.source.endpoint)) as events:
            if not await events.connect(HANDSHAKE_S):
                raise PreflightFailedError(f"{self.source.endpoint} stopped answering.", _AGAIN)
            await events.settle(SETTLE_S)
            # The first text may be sent before the subscription is effective.
            for _ in range(PROBES):
                text, tokens = await self._probe_text()
                wanted = token_block_keys(seed, tokens, self.block_tokens)
                announced = AnnouncedBlocks(seed, wanted, self.block_tokens)
                await self._engine.complete(text)
                await events.receive(announced, EVENTS_S)
                if announced.complete:
                    return Step(
                        key="keys",
                        state=OK,
                        sentence=f"Same text, same blocks: all {count(len(wanted), 'block')} of a random text match.",
                    )
        raise self._disagreement(announced)

    async def _answers(self) -> Step:
        text, _ = await self._probe_text()
        completion = await self._engine.complete(text)
        remark = "" if completion.reports_cached_tokens else _NO_CACHED_TOKENS
        return Step(key="keys", state=OK, sentence="It answers a request; keys come from its text.", remedy=remark)

    async def _probe_text(self) -> tuple[str, array[int]]:
        """Return a new random text and its tokens, at least PROBE_BLOCKS full blocks."""
        wanted = PROBE_BLOCKS * self.block_tokens + 1
        words = wanted // 2 + 8
        while True:
            text = _random_text(words)
            tokens = await self._engine.tokenize(text)
            if len(tokens) >= wanted:
                return text, tokens
            words *= 2
            if len(text) > MAX_PROBE_CHARS:
                raise PreflightFailedError(
                    f"/tokenize returned {count(len(tokens), 'token')} for {count(len(text), 'character')}.",
                    "Check the engine's tokenizer; this text should have many more tokens.",
                )

    def _disagreement(self, announced: AnnouncedBlocks | None) -> PreflightFailedError:
        wanted = self.block_tokens
        if announced is None or (not announced.events and not announced.unreadable):
            return PreflightFailedError(
                f"No event within {EVENTS_S:g}{_NARROW}s of a request with {PROBE_BLOCKS} new blocks.",
                "Check that prefix caching is on and that the event endpoint belongs to this engine.",
            )
        if announced.foreign_sizes:
            reported = min(announced.foreign_sizes)
            return PreflightFailedError(
                f"Same text gives different blocks (events: {count(reported, 'token')} per block, pool: {wanted}).",
                f"Set the engine's block size to {wanted}, or register it in a pool with blocks of {reported}.",
            )
        if not announced.events:
            return PreflightFailedError(
                "Its events are unreadable.", "Use an engine version whose KV events Headway supports."
            )
        return PreflightFailedError(
            "Same text gives different blocks: no event matches the tokens from /tokenize.",
            "Check that the event endpoint belongs to this engine, and that it adds no tokens to prompts.",
        )


def _random_text(words: int) -> str:
    letters = string.ascii_lowercase
    return " ".join("".join(secrets.choice(letters) for _ in range(4)) for _ in range(words))


_AGAIN = "Check again. If it persists, check the engine's log and the network."
_NOT_AN_ENGINE = "Check that a vLLM engine listens there, not another program."
_NO_CACHED_TOKENS = "It does not report cached tokens; start it with --enable-prompt-tokens-details to see hit rates."
