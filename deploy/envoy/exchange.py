"""Process the ext_proc messages of one request as the endpoint picker protocol defines them.

The picker reads the request body first, then sends headers and body back with the endpoint, and watches the response.
The protocol is proposal 004 of the Gateway API Inference Extension.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from deploy.envoy.replies import (
    BUFFERED,
    DROPPED,
    DUPLEX,
    ENDPOINT,
    NONE,
    SUBSET,
    Reply,
    addresses,
    body_modes,
    endpoint_reply,
    headers_of,
    headers_reply,
    immediate,
    pieces,
    served_by,
    subset_of,
    unchanged,
)
from headway_client.clients import AsyncHeadway
from headway_client.decisions import ENDPOINTS, OWNED_FIELDS, AnswerTail, RejectedError, Route, answer_headers, model_of

MAX_BODY = 8 << 20
MAX_SUBSET = 1000
"""Number of allowed endpoints up to which Headway chooses among them. Beyond it, other choices are canceled."""
BACKUPS = 2
"""Number of further endpoints that the proxy may try, in order."""
OBJECTIVE = ("x-llm-d-inference-objective", "x-gateway-inference-objective")
"""Headers with the name of an InferenceObjective; the second is the older one."""
_REMOVED = frozenset({"x-data-parallel-rank", "authorization", "x-api-key", "accept-encoding"})
_REMOVED_PREFIXES = ("x-headway-", "x-llm-d-", "x-gateway-inference-", ENDPOINT)
"""Headers that no engine gets from a client. Without accept-encoding, engines compress nothing, so that the picker can
read the answer.
"""
_NO_MODE = "Set request_body_mode of ext_proc to FULL_DUPLEX_STREAMED or BUFFERED."
_logger = logging.getLogger("headway.picker")


class Objectives(Protocol):
    """The InferenceObjectives of the pool."""

    def priority(self, name: str) -> int | None:
        """Return the priority of an objective (lower is more urgent), None if it is unknown."""

    def problem(self, timeout_s: float = 0.0) -> str:
        """Return why objectives are not known now, empty if they are. Waits for the first list."""

    def close(self) -> None:
        """End their watches."""


@dataclass(frozen=True, slots=True)
class PickerContext:
    """What all requests share. Mutable: the client's known engines, the counters, and the running report tasks."""

    client: AsyncHeadway
    counts: Counter[str]
    reports: set[asyncio.Task[None]] = field(default_factory=set)
    objectives: Objectives | None = None
    trusts_subset_header: bool = False


class PickerExchange:
    """Handles one request in the picker. Mutable: the request's state so far."""

    def __init__(self, context: PickerContext) -> None:
        self._context = context
        self._client = context.client
        self._subset: frozenset[str] | None = None
        self._headers: dict[str, str] = {}
        self._body = bytearray()
        self._buffered = False
        self._route: Route | None = None
        self._echoes = False
        self._unseen = False
        self._status = 0
        self._served = ""
        self._tail = AnswerTail()
        self._path = ""
        self._picked = False
        self._ended = False
        self._reporting: asyncio.Task[None] | None = None

    async def process(self, messages: AsyncIterator[Any]) -> AsyncIterator[Reply]:
        """Yield the replies to Envoy. When the stream ends, for any reason, the request ends too."""
        try:
            async for message in messages:
                kind = message.WhichOneof("request")
                for reply in await self._replies(kind, message):
                    yield reply
                    if reply.HasField("immediate_response"):
                        return
        finally:
            self._end("cancel")

    async def _replies(self, kind: str, message: Any) -> Iterable[Reply]:
        part = getattr(message, kind)
        if kind == "request_headers":
            return self._begun(part, message)
        if kind == "request_body":
            self._body += part.body
            self._subset = subset_of(message) if self._subset is None else self._subset
            if len(self._body) > MAX_BODY:
                # The whole body is held in memory until the decision.
                return [immediate(413, b"", {}, "headway_body_too_large")]
            return await self._pick(ends=True) if part.end_of_stream or self._buffered else ()
        if kind == "request_trailers":
            picked = () if self._picked else await self._pick(ends=False)
            return [*picked, unchanged(kind)]
        return self._watched(kind, part, message)

    def _begun(self, part: Any, message: Any) -> Iterable[Reply]:
        self._headers = headers_of(part)
        self._subset = subset_of(message)
        if self._subset is None and self._context.trusts_subset_header and SUBSET in self._headers:
            self._subset = addresses(self._headers[SUBSET])
        asked = self._headers.get(":path", "").partition("?")[0]
        self._path = next((item for item in ENDPOINTS if asked.endswith(item)), "")
        mode, answer_mode = body_modes(message)
        self._buffered, self._echoes, self._unseen = mode == BUFFERED, answer_mode == DUPLEX, answer_mode == NONE
        if part.end_of_stream:
            # A request without a body gets no body message, so its headers are answered at once.
            return self._unread()
        if self._buffered:
            # Envoy sends the body only once its headers have a reply.
            return [unchanged("request_headers")]
        if mode == DUPLEX:
            return ()
        if not self._context.counts["unsupported_mode"]:
            _logger.error(_NO_MODE)
        self._context.counts["unsupported_mode"] += 1
        return [immediate(500, _error(_NO_MODE, "unsupported_mode"), {}, "headway_unsupported_mode")]

    def _unread(self) -> list[Reply]:
        """Answer a request that has no body, such as a list of models: any engine can serve it."""
        try:
            route = self._client.decisions.without_prompt(time.monotonic(), self._allows)
        except RejectedError as error:
            if not self._subset:
                return [_rejected(error)]
            # The picker knows no engine yet, but the proxy does.
            route = Route(f"http://{min(self._subset)}")
        return [endpoint_reply(self._endpoints(route, ""), route.headers, self._removed())]

    async def _pick(self, *, ends: bool) -> list[Reply]:
        self._picked = True
        # Not held while the answer streams.
        body, self._body = bytes(self._body), bytearray()
        try:
            request = json.loads(body)
            if not isinstance(request, dict):
                raise ValueError("no object")
        except ValueError:
            text = "The body is not a JSON object."
            return [immediate(400, _error(text, "invalid_json", "invalid_request_error"), {}, "headway_invalid_json")]
        try:
            self._route = route = await self._decide(request)
        except RejectedError as error:
            self._context.counts["rejected"] += 1
            return [_rejected(error)]
        self._context.counts["decided" if route.decision_id else "failed_open"] += 1
        # A fallback has no fields of its own, but a client's copies must not reach the engine either.
        if OWNED_FIELDS & request.keys() and not route.body:
            body = json.dumps({name: value for name, value in request.items() if name not in OWNED_FIELDS}).encode()
        body = route.merged(body)
        endpoints = self._endpoints(route, model_of(request))
        headers = {"content-length": str(len(body)), **route.headers}
        if self._buffered:
            return [endpoint_reply(endpoints, headers, self._removed(), whole_body=body)]
        return [endpoint_reply(endpoints, headers, self._removed()), *pieces("request_body", body, ends=ends)]

    async def _decide(self, request: dict[str, Any]) -> Route:
        """Return the decision among the allowed endpoints, or a fallback among them; raise RejectedError."""
        priority = self._priority()
        asked = request if priority is None else {**request, "priority": priority}
        # In a fixed order, because Headway reads repeated headers faster. A longer list would exceed their limit.
        among = None if self._subset is None or len(self._subset) > MAX_SUBSET else sorted(self._subset)
        route = await self._client.decide(asked, path=self._path, headers=self._headers, among=among)
        if "priority" not in request:
            # That of an objective orders requests at Headway. Engines without priority scheduling may reject the field.
            route = replace(route, body={name: value for name, value in route.body.items() if name != "priority"})
        if self._allows(route.engine_url):
            return route
        model = model_of(request)
        # The decision reserved its engine, which this request will not use.
        await self._client.report(route, "cancel")
        return self._client.decisions.fallback(model, "outside_subset", time.monotonic(), self._allows)

    def _priority(self) -> int | None:
        """Return the priority of the request's objective, None if it names none that is known.

        It outranks a priority in the body: the operator has set it.
        """
        name = next((self._headers[header] for header in OBJECTIVE if header in self._headers), "")
        return self._context.objectives.priority(name) if self._context.objectives and name else None

    def _allows(self, url: str) -> bool:
        return self._subset is None or _address(url) in self._subset

    def _endpoints(self, route: Route, model: str) -> str:
        chosen = _address(route.engine_url)
        known = self._client.decisions.known(model, time.monotonic(), self._allows)
        others = dict.fromkeys(_address(url) for url in known if _address(url) != chosen)
        return ",".join([chosen, *list(others)[:BACKUPS]])

    def _removed(self) -> frozenset[str]:
        """Return the headers that the engine must not get. Those that the picker sets stay."""
        return _REMOVED | {name for name in self._headers if name.startswith(_REMOVED_PREFIXES)}

    def _watched(self, kind: str, part: Any, message: Any) -> Iterable[Reply]:
        if kind == "response_headers":
            self._status = int(headers_of(part).get(":status", "0"))
            self._served = served_by(message)
            self._seen(b"", ends=part.end_of_stream)
            ids = answer_headers(self._route, self._headers) if self._route is not None else {}
            return [headers_reply(kind, ids)]
        if kind == "response_body":
            self._seen(part.body, ends=part.end_of_stream)
            return pieces(kind, part.body, ends=part.end_of_stream) if self._echoes else [unchanged(kind)]
        self._seen(b"", ends=True)
        return [unchanged(kind)]

    def _seen(self, chunk: bytes, *, ends: bool) -> None:
        if self._tail.first_token(chunk) and self._status < 400 and not self._elsewhere():
            self._report("first_token")
        if ends:
            self._end("complete")

    def _elsewhere(self) -> bool:
        """Return whether a backup endpoint served because the chosen one refused or closed the connection."""
        return bool(self._served and self._route) and self._served != _address(self._route.engine_url)  # type: ignore[union-attr]

    def _end(self, verb: str) -> None:
        if self._ended:
            return
        self._ended = True
        if self._status >= 500 or self._elsewhere() or (self._status < 400 and self._tail.failed):
            verb = "fail"
        elif self._status >= 400:
            verb = "cancel"
        elif self._tail.whole or (self._unseen and self._status):
            verb = "complete"
        self._report(verb, self._tail.usage() if verb == "complete" else None)

    def _report(self, verb: str, usage: dict[str, int] | None = None) -> None:
        """Send a report in the background, after the request's earlier reports."""
        if self._route is None:
            return
        route, before = self._route, self._reporting

        async def send() -> None:
            if before is not None:
                await before
            await self._client.report(route, verb, usage)

        self._reporting = asyncio.create_task(send())
        # The event loop holds tasks weakly, so a report would otherwise be lost with its request.
        self._context.reports.add(self._reporting)
        self._reporting.add_done_callback(self._context.reports.discard)


def _rejected(error: RejectedError) -> Reply:
    """Return the immediate response for a rejection of Headway, with llm-d's header for its reason."""
    try:
        code = str(json.loads(error.body)["error"]["code"])
    except (ValueError, KeyError, TypeError):
        code = "rejected"
    # Headway states its reasons itself.
    local = {DROPPED: "rejected-no-endpoints"} if code == "no_decision" else {}
    headers = {**local, **error.headers}
    return immediate(error.status, error.body, headers, f"headway_{code}")


def _error(message: str, code: str, kind: str = "server_error") -> bytes:
    return json.dumps({"error": {"message": message, "type": kind, "code": code}}).encode()


def _address(url: str) -> str:
    """Return the `ip:port` of an engine's URL."""
    return url.partition("://")[2].partition("/")[0]
