"""Reads the facts of one engine: models, blocks, ranks, event sockets, and tokenizer. Uses no database."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

import msgspec

from controlplane.fleet.engine_url import CheckedUrl, bracketed, ranked_url
from controlplane.fleet.models.engine import EngineRole
from controlplane.fleet.preflight.engine import EngineUnderTest, ServerInfo
from gateway.pools.engines.engine_session import engine_session
from gateway.pools.engines.engine_tls import AUTHORITY, UNTRUSTED
from gateway.pools.engines.health_probe import EngineAnswerError, EngineUnreachableError
from gateway.pools.engines.vllm_adapter import KvEventSource, ModelCard
from routing.values.prepared_struct import prepared


class ConnectRejectedError(Exception):
    """The engine cannot be connected, and nothing was changed.

    `remedy` explains the fix. `start_line` is a complete command that starts the engine. `estimable`: a new pool may
    route to the engine with estimated hits.
    """

    def __init__(self, sentence: str, remedy: str, *, start_line: str = "", estimable: bool = False) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.remedy = remedy
        self.start_line = start_line
        self.estimable = estimable


ANSWER_S = 3.0
ASK_S = 20.0
"""Time limit of all requests together."""
VLLM, SGLANG = "vLLM", "SGLang"


@dataclass(frozen=True, slots=True)
class ConnectedEngineFacts:
    """An engine's facts about itself; None for a fact that it does not report."""

    url: str
    product: str
    """VLLM, SGLANG, or empty."""
    version: str
    names: tuple[str, ...]
    """Names of its model, the primary name first."""
    adapters: tuple[str, ...]
    """LoRA adapters."""
    weights: str
    context_tokens: int | None
    block_tokens: int | None
    kv_tokens: int | None
    ranks: int
    events: str
    """KV event endpoint as reachable from here; empty: none. `sockets` has the endpoints of all ranks."""
    replay: str
    tokenizes: bool
    """Whether the engine has /tokenize, which is needed to compute token blocks."""
    role: str = EngineRole.MIXED
    """The role that the engine was started for, if it reports one."""
    sockets: tuple[KvEventSource, ...] = ()
    """Publishing and replay endpoints of each rank."""
    reports_sockets: bool = True
    """False for vLLM before 0.31, whose sockets are searched for at the usual ports."""

    def of_rank(self, rank: int) -> ConnectedEngineFacts:
        """Return the facts of one data-parallel rank, which has a separate cache and separate event sockets."""
        own = next((socket for socket in self.sockets if socket.data_parallel_rank == rank), None)
        events, replay = (own.endpoint, own.replay_endpoint) if own else ("", "")
        url = ranked_url(self.url.partition("#")[0], rank)
        return replace(self, url=url, ranks=1, events=events, replay=replay)


class _Version(msgspec.Struct):
    version: str = ""


class _EventsConfig(msgspec.Struct):
    publisher: str = "null"
    endpoint: str = "tcp://*:5557"
    replay_endpoint: str | None = None


async def ask_engine(address: CheckedUrl, *, bearer: str, variable: str) -> ConnectedEngineFacts:
    """Read all facts from the engine.

    `variable` names the environment variable of the key. Raises ConnectRejectedError.
    """
    async with engine_session(keepalive_s=ANSWER_S, limit=2) as session:
        engine = _Engine(session, address.connect_url, bearer=bearer, timeout_s=ANSWER_S)
        try:
            async with asyncio.timeout(ASK_S):
                return await engine.facts(address.url)
        except (EngineUnreachableError, TimeoutError) as error:
            remedy = "Check that the engine listens on this address and that this host can reach it."
            if str(error) == UNTRUSTED:
                remedy = f"Set {AUTHORITY} to a PEM file of its authority, for Headway and for this command."
            raise ConnectRejectedError(
                f"Unreachable at {address.url}: {str(error) or 'no answer in time'}.", remedy
            ) from None
        except EngineAnswerError as error:
            raise ConnectRejectedError(*_useless(address.url, error, variable)) from None


def _useless(url: str, error: EngineAnswerError, variable: str) -> tuple[str, str]:
    if error.status in (401, 403):
        return (
            "The engine requires another key.",
            f"Set {variable} to its key, for Headway and for this command, then connect again.",
        )
    return (
        f"{url} does not answer as an engine: {error}.",
        "Enter the base URL of a vLLM or SGLang server, such as http://10.0.3.7:8000.",
    )


class _Engine(EngineUnderTest):
    """An engine that is not registered yet."""

    async def facts(self, url: str) -> ConnectedEngineFacts:
        cards = await self.models()
        own = next((card for card in cards if card.parent is None), None)
        if own is None:
            raise EngineAnswerError("it serves no model")
        self._served_model = own.id
        version = (await self.optional_answer("/version", _Version) or _Version()).version
        metrics, info = await self.sizes()
        reported_ranks = info.dp_size if info else metrics.ranks if metrics else 1
        sources, reported = ((), True) if info else await self.event_sources(reported_ranks)
        events, replay = _endpoints(sources, info, self.url)
        return ConnectedEngineFacts(
            url=url,
            product=SGLANG if info else VLLM if version else "",
            version=(info.version if info else version)[:40],
            names=_names(cards, own),
            adapters=tuple(card.id for card in cards if card.parent is not None),
            weights=own.root or own.id,
            context_tokens=own.max_model_len,
            block_tokens=info.page_size if info else metrics.block_size if metrics else None,
            kv_tokens=info.max_total_num_tokens if info else metrics.kv_tokens if metrics else None,
            ranks=max(len(sources), reported_ranks),
            events=events,
            replay=replay,
            tokenizes=await self._tokenizes(),
            role=_role(info),
            sockets=sources,
            reports_sockets=reported,
        )

    async def _tokenizes(self) -> bool:
        try:
            return bool(await self.tokenize("Headway"))
        except EngineAnswerError as error:
            # A wrong key says nothing about the tokenizer.
            if error.status in (401, 403):
                raise
            return False


def _role(info: ServerInfo | None) -> str:
    mode = info.disaggregation_mode if info else None
    return mode if mode in (EngineRole.PREFILL, EngineRole.DECODE) else EngineRole.MIXED


def _names(cards: tuple[ModelCard, ...], own: ModelCard) -> tuple[str, ...]:
    return tuple(card.id for card in cards if card.parent is None and card.root == own.root)


def _endpoints(sources: tuple[KvEventSource, ...], info: ServerInfo | None, url: str) -> tuple[str, str]:
    """Return the publishing and replay endpoints of the first rank, as reachable from here.

    SGLang reports its sockets in its arguments.
    """
    if sources:
        first = min(sources, key=lambda source: source.data_parallel_rank)
        return first.endpoint, first.replay_endpoint
    config = _events_config(info.kv_events_config if info else None)
    if config is None or config.publisher != "zmq":
        return "", ""
    host = bracketed(urlsplit(url).hostname or "")
    return config.endpoint.replace("*", host), (config.replay_endpoint or "").replace("*", host)


def _events_config(text: str | None) -> _EventsConfig | None:
    try:
        return msgspec.json.decode(text, type=prepared(_EventsConfig)) if text else None
    except msgspec.DecodeError:
        return None
