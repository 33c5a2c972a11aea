"""HTTP calls to one vLLM or SGLang engine: load, metrics, health, models, tokenizer, event sources.

A call either returns a checked value or raises EngineUnreachableError or EngineAnswerError. Responses are bounded,
redirects are not followed, and the bearer token is sent only to this engine's URL.
"""

from __future__ import annotations

import io
from array import array
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

import aiohttp
import msgspec
from msgspec import Meta

from gateway.base.engine_api_keys import REJECTED_KEY
from gateway.pools.engines.engine_metrics import (
    MAX_BYTES,
    MAX_COUNT,
    EngineMetrics,
    LightLoad,
    RankLoads,
    UnreadableMetricsError,
    parse_engine_metrics,
    scan_load,
    total_load,
)
from gateway.pools.engines.health_probe import (
    EngineAnswerError,
    EnginePausedError,
    EngineUnreachableError,
    Patience,
    probe,
    unreachable,
)
from gateway.pools.engines.probe_http import NotPlainError, ProbeAnswer, ProbeClient, TooLongError
from routing.values.prepared_struct import prepared

MAX_ANSWER_BYTES = 64 << 10
MAX_INFO_BYTES = 1 << 20
MAX_TOKENIZE_BYTES = 16 << 20
TRIAL_S = 3.0
"""Seconds within which a healthy engine answers a one-token request."""
_CHUNK_BYTES = 64 << 10
_LARGE_BODY = 1 << 20
_NO_SUCH_PATH = (403, 404, 405)
_TEXT_TYPES = ("text/plain", "application/openmetrics-text")

_OWN: Mapping[str, str] = {}
"""No other credentials than the adapter's own."""

Wanted = TypeVar("Wanted")


def rank_header(rank: int | None) -> dict[str, str]:
    """Return the header that selects one of vLLM's data-parallel ranks."""
    return {} if rank is None else {"X-data-parallel-rank": str(rank)}


class KvEventSource(msgspec.Struct, frozen=True):
    """A socket on which an engine publishes KV events."""

    endpoint: str
    replay_endpoint: str
    data_parallel_rank: int


class _ServerLoad(msgspec.Struct):
    server_load: int


class _Pause(msgspec.Struct):
    is_paused: bool = False


class ModelCard(msgspec.Struct, frozen=True):
    """One name that an engine serves; `max_model_len` in tokens, `created` in unix seconds. None: not reported."""

    id: str
    created: int | float | None = None
    owned_by: str | None = None
    root: str | None = None
    """The weights, which are the same for all names of one model."""
    parent: str | None = None
    """The base model of a LoRA adapter, else None."""
    max_model_len: int | None = None


class _Models(msgspec.Struct):
    data: list[ModelCard]


class _Tokens(msgspec.Struct):
    tokens: list[int]


class _Arguments(msgspec.Struct):
    disaggregation_mode: str | None = None
    disaggregation_bootstrap_port: Annotated[int, Meta(ge=1, le=65_535)] | None = None


class _Source(msgspec.Struct):
    endpoint: str = ""
    replay_endpoint: str | None = None


class VllmAdapter:
    """HTTP calls to one engine, or to one of its data-parallel ranks.

    `session` is shared and must not decompress responses. `plain`: reads use a cheap connection reserved for them, one
    at a time, as a prober needs; `close` closes it. Mutable: the key, which paths the engine lacks, and the timeout of
    reads.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        *,
        served_model: str = "",
        bearer: str = "",
        timeout_s: float = 1.0,
        plain: bool = False,
        rank: int | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self._session = session
        self._served_model = served_model
        # Limits count received bytes; a compressed answer could be far longer.
        self._headers = {"Accept-Encoding": "identity"}
        self._headers.update(rank_header(rank))
        self.bearer = ""
        self._rank = rank
        self._patience = Patience(timeout_s)
        self._load_path_missing = rank is not None  # it sums all ranks
        self._loads_path_missing = False
        self._pause_path_missing = False
        self._plain = ProbeClient(self.url, self._headers) if plain and ProbeClient.speaks(url) else None
        self._use_key(bearer)

    async def renew_key(self, newest: str) -> bool:
        """Send this key from now on if the engine accepts it. Return False if the key in use stays.

        So an engine gets its previous key for as long as it rejects the new one.
        """
        if not newest or newest == self.bearer:
            return False
        try:
            await self._request(
                "GET",
                "/v1/models",
                "models",
                limit=MAX_INFO_BYTES,
                timeout_s=self._patience.seconds,
                credentials={"Authorization": f"Bearer {newest}"},
            )
        except EngineUnreachableError:
            return False
        except EngineAnswerError as error:
            if error.status in REJECTED_KEY:
                return False
        self._use_key(newest)
        return True

    def _use_key(self, bearer: str) -> None:
        if not bearer:
            return
        self.bearer = bearer
        self._headers["Authorization"] = f"Bearer {bearer}"
        if self._plain is not None:
            self._plain.close()
            self._plain = ProbeClient(self.url, self._headers)

    def close(self) -> None:
        """Close the connection for plain reads, if it is open."""
        if self._plain is not None:
            self._plain.close()

    async def load(self, *, with_waiting: bool = False) -> LightLoad:
        """Return a cheap load reading: from `/load`, SGLang's `/v1/loads`, or a byte scan of `/metrics`.

        `with_waiting` excludes `/load`, which does not report waiting requests.
        """
        if not (with_waiting or self._load_path_missing):
            try:
                answer = await self._get("/load", "load")
            except EngineAnswerError as error:
                if error.status != 404:
                    raise
                self._load_path_missing = True
            else:
                load = _decode(answer, _ServerLoad, "load").server_load
                if not 0 <= load <= MAX_COUNT:
                    raise EngineAnswerError(f"load cannot be {load}")
                return LightLoad(load, None)
        if self._load_path_missing and not self._loads_path_missing and self._rank is None:
            try:
                return total_load(_decode(await self._get("/v1/loads", "loads"), RankLoads, "loads").loads)
            except EngineAnswerError as error:
                if error.status not in _NO_SUCH_PATH:
                    raise
                self._loads_path_missing = True
        try:
            return LightLoad(*scan_load(await self._metrics_text(), self._rank))
        except UnreadableMetricsError as error:
            raise EngineAnswerError(f"metrics are unreadable: {error}") from None

    async def full_metrics(self) -> EngineMetrics:
        """Return all series that a router needs; raise EngineAnswerError "metrics are unreadable: …" otherwise."""
        try:
            return parse_engine_metrics(await self._metrics_text(), self._rank)
        except UnreadableMetricsError as error:
            raise EngineAnswerError(f"metrics are unreadable: {error}") from None

    async def probe(self) -> str:
        """Return why /health is late, else an empty string. Raise as `health` does, but treat the engine as silent only
        if /metrics is too.
        """
        return await probe(self.health, self._silence, self._patience)

    async def _silence(self, timeout_s: float) -> EngineUnreachableError | None:
        """Return why /metrics got no response, None if it got any."""
        try:
            await self._request("GET", "/metrics", "metrics", limit=MAX_BYTES, timeout_s=timeout_s)
        except EngineUnreachableError as error:
            return error
        except EngineAnswerError:
            return None
        return None

    async def health(self) -> None:
        """Return if the engine reports itself as healthy, else raise an error with the reason.

        A paused or sleeping engine still answers /health, so this is checked too if the engine can be paused.
        """
        asked_s = monotonic()
        await self._get("/health", "health")
        self._patience.note(monotonic() - asked_s)
        if self._pause_path_missing:
            return
        try:
            paused = _decode(await self._get("/is_paused", "is_paused"), _Pause, "is_paused").is_paused
        except EngineAnswerError as error:
            # vLLM has this path, and those that pause it, in development mode alone.
            self._pause_path_missing = error.status in _NO_SUCH_PATH
            return
        except EngineUnreachableError as error:
            if not error.timed_out:
                raise
            # Its core answers this between two steps, and a long prefill is one step; /health has just answered.
            return
        if paused:
            raise EnginePausedError("it is paused")

    async def generate_one(self, timeout_s: float = TRIAL_S, **more: Any) -> bytes:
        """Return the engine's answer to a one-token request with these fields; else raise an error with the reason."""
        return await self._prefill("1", "a request of one token", timeout_s=timeout_s, limit=MAX_ANSWER_BYTES, **more)

    async def _prefill(self, prompt: str, what: str, *, timeout_s: float, limit: int, **more: Any) -> bytes:
        """Return the engine's one-token answer to the prompt, or the embedding if the model generates no tokens."""
        body = {"model": self._served_model, "prompt": prompt, "max_tokens": 1, "temperature": 0, **more}
        try:
            return await self._post("/v1/completions", body, what, timeout_s, limit)
        except EngineAnswerError as error:
            if error.status not in _NO_SUCH_PATH:
                raise
        body = {"model": self._served_model, "input": prompt, "encoding_format": "base64"}
        return await self._post("/v1/embeddings", body, what, timeout_s, limit)

    async def _post(self, path: str, body: dict[str, Any], what: str, timeout_s: float, limit: int) -> bytes:
        raw = msgspec.json.encode(body)
        return await self._request("POST", path, what, timeout_s=timeout_s, limit=limit, body=raw)

    async def models(self) -> tuple[ModelCard, ...]:
        """Return the models, aliases and adapters that the engine serves."""
        answer = await self._get("/v1/models", "models", limit=MAX_INFO_BYTES)
        return tuple(_decode(answer, _Models, "models").data)

    async def tokenize(
        self,
        prompt_or_messages: str | Sequence[Any] | msgspec.Raw,
        *,
        extra: Mapping[str, Any] | None = None,
        model: str = "",
        timeout_s: float = 5.0,
    ) -> array[int]:
        """Return the token ids of a text, or of chat messages in the engine's own template.

        `model` is the adapter whose tokenizer to use; empty: the served model. `extra` fields (tools,
        chat_template_kwargs, add_special_tokens) are added to the request unchanged.
        """
        content = "prompt" if isinstance(prompt_or_messages, str) else "messages"
        body: dict[str, Any] = {**(extra or {}), content: prompt_or_messages}
        if model or self._served_model:
            body["model"] = model or self._served_model
        answer = await self._request(
            "POST",
            "/tokenize",
            "tokenize",
            limit=MAX_TOKENIZE_BYTES,
            timeout_s=timeout_s,
            body=msgspec.json.encode(body),
        )
        try:
            return array("I", _decode(answer, _Tokens, "tokenize").tokens)
        except OverflowError:
            raise EngineAnswerError("tokenize answered token ids outside 0 … 2³²−1") from None

    async def kv_event_sources(self) -> tuple[KvEventSource, ...] | None:
        """Return the engine's event sockets by rank, with addresses reachable from here; None if it does not report
        them.
        """
        try:
            answer = await self._get("/kv_event_sources", "kv_event_sources")
        except EngineAnswerError as error:
            if error.status in _NO_SUCH_PATH:
                return None
            raise
        sources = _decode(answer, dict[int, _Source], "kv_event_sources")
        host = urlsplit(self.url).hostname or ""
        return tuple(
            KvEventSource(
                _seen_from_here(source.endpoint, host), _seen_from_here(source.replay_endpoint or "", host), rank
            )
            for rank, source in sorted(sources.items())
            if source.endpoint
        )

    async def bootstrap_port(self) -> int | None:
        """Return the port that SGLang's decode engines connect to, None if this is not an SGLang prefill engine."""
        try:
            answer = await self._get("/server_info", "server_info", limit=MAX_INFO_BYTES)
        except EngineAnswerError as error:
            if error.status in _NO_SUCH_PATH:
                return None
            raise
        arguments = _decode(answer, _Arguments, "server_info")
        return arguments.disaggregation_bootstrap_port if arguments.disaggregation_mode == "prefill" else None

    async def _metrics_text(self) -> bytes:
        """Return the text of /metrics. A rejection counts as unreadable, because health is checked elsewhere."""
        try:
            return await self._get("/metrics", "metrics", limit=MAX_BYTES, types=_TEXT_TYPES)
        except EngineAnswerError as error:
            raise EngineAnswerError(f"metrics are unreadable: {error}") from None

    async def _get(self, path: str, what: str, *, limit: int = MAX_ANSWER_BYTES, types: tuple[str, ...] = ()) -> bytes:
        if self._plain is not None:
            try:
                return await self._probe(self._plain, path, what, limit, types)
            except NotPlainError:
                # An engine that chunks or compresses its answers does so again: the full client reads it from here on.
                self._plain.close()
                self._plain = None
        return await self._request("GET", path, what, limit=limit, timeout_s=self._patience.seconds, types=types)

    async def _probe(self, plain: ProbeClient, path: str, what: str, limit: int, types: tuple[str, ...]) -> bytes:
        timeout_s = self._patience.seconds
        try:
            answer = await plain.get(path, limit=limit, timeout_s=timeout_s)
        except TimeoutError:
            raise EngineUnreachableError(f"{what} timed out after {timeout_s:g} s", timed_out=True) from None
        except TooLongError:
            raise EngineAnswerError(f"{what} answered more than {limit} bytes") from None
        except OSError as error:
            raise unreachable(error) from None
        _check_plain(answer, what, types)
        return answer.body

    async def _request(
        self,
        method: str,
        path: str,
        what: str,
        *,
        limit: int,
        timeout_s: float,
        types: tuple[str, ...] = (),
        body: bytes | None = None,
        credentials: Mapping[str, str] = _OWN,
    ) -> bytes:
        content_type = {} if body is None else {"Content-Type": "application/json"}
        headers = {**self._headers, **content_type, **credentials}
        try:
            async with self._session.request(
                method,
                self.url + path,
                headers=headers,
                # aiohttp warns about large bytes, which it would copy in one go; a file it reads piece by piece.
                data=io.BytesIO(body) if body is not None and len(body) >= _LARGE_BODY else body,
                # A redirect would take the bearer token to another address.
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=timeout_s),
            ) as response:
                _check_head(response, what, types)
                return await _read(response, what, limit)
        except TimeoutError:
            raise EngineUnreachableError(f"{what} timed out after {timeout_s:g} s", timed_out=True) from None
        # An answer came, so that the engine is not unreachable.
        except (aiohttp.ClientResponseError, aiohttp.ClientPayloadError, aiohttp.InvalidURL) as error:
            raise EngineAnswerError(f"{what} answer is broken: {type(error).__name__}") from None
        except (aiohttp.ClientError, OSError) as error:
            raise unreachable(error) from None


def _check_head(response: aiohttp.ClientResponse, what: str, types: tuple[str, ...]) -> None:
    if response.status != 200:
        raise EngineAnswerError(f"{what} answered {response.status}", status=response.status)
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise EngineAnswerError(f"{what} answer is compressed, which was not requested")
    if types and response.content_type not in types:
        raise EngineAnswerError(f"{what} are {response.content_type[:60]!a}, not text")


def _check_plain(answer: ProbeAnswer, what: str, types: tuple[str, ...]) -> None:
    if answer.status != 200:
        raise EngineAnswerError(f"{what} answered {answer.status}", status=answer.status)
    if types and answer.content_type not in types:
        raise EngineAnswerError(f"{what} are {answer.content_type[:60]!a}, not text")


async def _read(response: aiohttp.ClientResponse, what: str, limit: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
        size += len(chunk)
        if size > limit:
            raise EngineAnswerError(f"{what} answered more than {limit} bytes")
        chunks.append(chunk)
    return b"".join(chunks)


def _decode(answer: bytes, kind: type[Wanted], what: str) -> Wanted:
    try:
        return msgspec.json.decode(answer, type=prepared(kind))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise EngineAnswerError(f"{what} returned an unexpected answer") from None


def _seen_from_here(endpoint: str, host: str) -> str:
    """Replace a wildcard address (`*`, 0.0.0.0, [::]) by the host at which the engine is reached."""
    for own in ("*", "0.0.0.0", "[::]"):  # noqa: S104 - compared with, not bound to
        if endpoint.startswith(f"tcp://{own}:"):
            shown = f"[{host}]" if ":" in host else host
            return f"tcp://{shown}:{endpoint.rsplit(':', 1)[1]}"
    return endpoint
