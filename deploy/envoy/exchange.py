"""Process the ext_proc messages of one request as the endpoint picker protocol defines them.

The picker reads the request body first, then sends headers and body back with the endpoint, and watches the response.
The protocol is proposal 004 of the Gateway API Inference Extension.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, TypeAlias

from envoy.config.core.v3 import base_pb2 as core
from envoy.extensions.filters.http.ext_proc.v3.processing_mode_pb2 import ProcessingMode
from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc
from google.protobuf.struct_pb2 import Struct

from headway_client.clients import AsyncHeadway
from headway_client.decisions import ENDPOINTS, OWNED_FIELDS, AnswerTail, RejectedError, Route, answer_headers, model_of

ENDPOINT = "x-gateway-destination-endpoint"
SUBSET = "envoy.lb.subset_hint", f"{ENDPOINT}-subset"
SERVED = "envoy.lb", f"{ENDPOINT}-served"
MAX_BODY = 8 << 20
CHUNK = 62_000
"""Maximum bytes of a body per message, as in the reference implementation."""
_OWNED_HEADERS = ("x-data-parallel-rank", "authorization", "x-api-key", "accept-encoding")
BACKUPS = 2
"""Number of further endpoints that the proxy may try, in order."""

Reply: TypeAlias = Any
"""A ProcessingResponse; the generated message classes have no types."""


class PickerExchange:
    """Handles one request in the picker. Mutable: the request's state so far."""

    def __init__(self, client: AsyncHeadway, counts: Counter[str], reports: set[asyncio.Task[None]]) -> None:
        """Start an exchange. `reports` is the set of running report tasks, shared by all requests."""
        self._client = client
        self._counts = counts
        self._reports = reports
        self._subset: frozenset[str] | None = None
        self._body = bytearray()
        self._route: Route | None = None
        self._echoes = False
        self._status = 0
        self._served = ""
        self._tail = AnswerTail()
        self._path = ""
        self._sent: dict[str, str] = {}
        self._ended = False
        self._reporting: asyncio.Task[None] | None = None

    async def process(self, messages: AsyncIterator[Any]) -> AsyncIterator[Reply]:
        """Yield the replies to Envoy. When the stream ends, for any reason, the request ends too."""
        try:
            async for message in messages:
                kind = message.WhichOneof("request")
                for reply in await self._answer(kind, message) or ():
                    yield reply
                    if reply.HasField("immediate_response"):
                        return
        finally:
            self._end("cancel")

    async def _answer(self, kind: str, message: Any) -> Iterator[Reply] | list[Reply] | None:
        part = getattr(message, kind)
        if kind == "request_headers":
            self._subset = _subset(message.metadata_context)
            self._sent = _values(part)
            asked = self._sent.get(":path", "").partition("?")[0]
            self._path = next((item for item in ENDPOINTS if asked.endswith(item)), "")
            self._echoes = message.protocol_config.response_body_mode == ProcessingMode.FULL_DUPLEX_STREAMED
            # A request without a body gets no body message, so its headers are answered at once.
            return self._unread() if part.end_of_stream else None
        if kind == "request_body":
            self._body += part.body
            if len(self._body) > MAX_BODY:
                # The whole body is held in memory until the decision.
                return [_immediate(413, b"")]
            return await self._picked() if part.end_of_stream else None
        if kind == "request_trailers":
            return [
                *await self._picked(ends=False),
                ext_proc.ProcessingResponse(request_trailers=ext_proc.TrailersResponse()),
            ]
        return self._watched(kind, part, message.metadata_context)

    def _unread(self) -> list[Reply]:
        """Answer a request that has no body, such as a list of models: any engine can serve it."""
        try:
            return [self._headers(self._client.decisions.fallback("", "no_body", time.monotonic(), self._allows))]
        except RejectedError as error:
            return [_immediate(503, error.body)]

    async def _picked(self, *, ends: bool = True) -> list[Reply]:
        body = bytes(self._body)
        try:
            request = json.loads(body)
            if not isinstance(request, dict):
                raise ValueError("no object")
        except ValueError:
            return [_immediate(400, b"")]
        try:
            self._route = route = await self._decide(request)
        except RejectedError as error:
            self._counts["rejected"] += 1
            return [_immediate(error.status, error.body, error.headers)]
        self._counts["decided" if route.decision_id else "failed_open"] += 1
        # A fallback has no fields of its own, but a client's copies must not reach the engine either.
        if OWNED_FIELDS & request.keys() and not route.body:
            body = json.dumps({name: value for name, value in request.items() if name not in OWNED_FIELDS}).encode()
        body = route.merged(body)
        return [self._headers(route, model_of(request), len(body)), *_pieces(body, ends=ends)]

    async def _decide(self, request: dict[str, Any]) -> Route:
        """Return the decision, or a fallback if its engine is outside the allowed subset; raise RejectedError."""
        route = await self._client.decide(request, path=self._path, headers=self._sent)
        if self._allows(route.engine_url):
            return route
        model = model_of(request)
        # The decision reserved its engine, which this request will not use.
        await self._client.report(route, "cancel")
        return self._client.decisions.fallback(model, "outside_subset", time.monotonic(), self._allows)

    def _allows(self, url: str) -> bool:
        return self._subset is None or _address(url) in self._subset

    def _headers(self, route: Route, model: str = "", length: int | None = None) -> Reply:
        chosen = _address(route.engine_url)
        known = self._client.decisions.known(model, time.monotonic(), self._allows)
        others = [_address(url) for url in known if _address(url) != chosen]
        endpoints = ",".join([chosen, *others[:BACKUPS]])
        headers = {ENDPOINT: endpoints, **({"content-length": str(length)} if length else {}), **route.headers}
        metadata = Struct()
        metadata.update({"envoy.lb": {ENDPOINT: endpoints}})
        mutation = ext_proc.HeaderMutation(
            set_headers=[_header(name, value) for name, value in headers.items()],
            remove_headers=[item for item in _OWNED_HEADERS if item not in headers],
        )
        # Envoy chooses a route before it calls the picker; the endpoint's header counts only for a new choice.
        common = ext_proc.CommonResponse(header_mutation=mutation, clear_route_cache=True)
        return ext_proc.ProcessingResponse(
            request_headers=ext_proc.HeadersResponse(response=common), dynamic_metadata=metadata
        )

    def _watched(self, kind: str, part: Any, metadata: Any) -> list[Reply]:
        if kind == "response_headers":
            self._status = int(_values(part).get(":status", "0"))
            self._served = _value(metadata, *SERVED) or ""
            self._seen(b"", ends=part.end_of_stream)
            ids = answer_headers(self._route, self._sent) if self._route is not None else {}
            mutation = ext_proc.HeaderMutation(set_headers=[_header(name, value) for name, value in ids.items()])
            common = ext_proc.CommonResponse(header_mutation=mutation)
            return [ext_proc.ProcessingResponse(response_headers=ext_proc.HeadersResponse(response=common))]
        if kind == "response_body":
            self._seen(part.body, ends=part.end_of_stream)
            if self._echoes:
                return list(_pieces(part.body, ends=part.end_of_stream, answer=True))
            return [ext_proc.ProcessingResponse(response_body=ext_proc.BodyResponse())]
        self._seen(b"", ends=True)
        return [ext_proc.ProcessingResponse(response_trailers=ext_proc.TrailersResponse())]

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
        elif self._tail.whole:
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
        self._reports.add(self._reporting)
        self._reporting.add_done_callback(self._reports.discard)


def _values(part: Any) -> dict[str, str]:
    # A HeaderValue has one of the two, never both.
    return {header.key: header.raw_value.decode() or header.value for header in part.headers.headers}


def _pieces(body: bytes, *, ends: bool, answer: bool = False) -> Iterator[Reply]:
    """Yield a body as streamed messages. If no trailers follow, the last message ends the stream."""
    # An empty body needs a message, too, which ends the stream.
    for start in range(0, max(len(body), 1), CHUNK):
        last = ends and start + CHUNK >= len(body)
        piece = ext_proc.StreamedBodyResponse(body=body[start : start + CHUNK], end_of_stream=last)
        common = ext_proc.CommonResponse(body_mutation=ext_proc.BodyMutation(streamed_response=piece))
        whole = ext_proc.BodyResponse(response=common)
        yield (
            ext_proc.ProcessingResponse(response_body=whole)
            if answer
            else ext_proc.ProcessingResponse(request_body=whole)
        )


def _immediate(status: int, body: bytes, headers: Mapping[str, str] | None = None) -> Reply:
    sent = {"content-type": "application/json", **(headers or {})}
    mutation = ext_proc.HeaderMutation(set_headers=[_header(name, value) for name, value in sent.items()])
    return ext_proc.ProcessingResponse(
        immediate_response=ext_proc.ImmediateResponse(status={"code": status}, headers=mutation, body=body)
    )


def _header(name: str, value: str) -> core.HeaderValueOption:
    return core.HeaderValueOption(
        header=core.HeaderValue(key=name, raw_value=value.encode()),
        append_action=core.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD,
    )


def _address(url: str) -> str:
    return url.partition("://")[2].rstrip("/")


def _value(metadata: Any, namespace: str, key: str) -> Any:
    fields = metadata.filter_metadata.get(namespace)
    return fields[key] if fields is not None and key in fields else None


def _subset(metadata: Any) -> frozenset[str] | None:
    """Return the endpoints that the proxy allows, None if it allows all."""
    allowed = _value(metadata, *SUBSET)
    if allowed is None:
        return None
    return frozenset(allowed.split(",") if isinstance(allowed, str) else list(allowed))
