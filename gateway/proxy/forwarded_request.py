"""The request sent to an engine: the client's body and headers, without fields that only Headway may set."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Any

import msgspec

from gateway.requests.formats.endpoints import CHAT, Endpoint
from gateway.requests.formats.engine_answer import AnswerFacts
from gateway.requests.formats.handoff_bodies import bootstrap_legs, decode_body, prefill_body
from gateway.requests.formats.hit_figures import HIDDEN
from gateway.requests.formats.media import with_names
from gateway.requests.formats.owned_fields import REMOVED, REVEALING
from gateway.requests.kv_load_report import with_order
from gateway.server.http.json_body import lax_flag, lax_int
from gateway.server.http.large_body import HeldBody, in_pieces
from kvstore.connector.engine_params import LoadInstruction

TRACE_HEADERS = ("traceparent", "tracestate")
PASSED_HEADERS = (*(name.encode() for name in TRACE_HEADERS), b"x-session-id")
"""Client headers that are forwarded. All others are dropped, including credentials and X-Data-Parallel-Rank.
LiveEngine.addressed adds the engine's key and rank once the engine is chosen.
"""

_REMOVED_WHERE_HIDDEN = REMOVED | REVEALING
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_LARGE_BODY = 1024 * 1024


class ForwardedRequest(msgspec.Struct, frozen=True):
    """One request in the form sent to engines."""

    endpoint: Endpoint
    body: bytes
    headers: Mapping[str, str]
    streams: bool
    strip_usage: bool
    """Whether the gateway, not the client, requested the usage in the stream."""
    max_tokens: int = 0
    """The client's limit of output tokens; 0: the engine's limit."""
    cached_tokens: int | None = None
    """Cached prompt tokens reported to the client: those of the prefill on another engine, or HIDDEN."""

    handed_over: bool = False
    """Whether another engine computed the prompt, so that a rejection reveals nothing about the client's body."""

    order: LoadInstruction | None = None
    """Instruction to the engine's KV connector, not yet in a body; None: none."""

    keys: tuple[int, ...] = ()
    """Keys of the prompt's blocks, if there is an instruction."""

    held: HeldBody | None = None
    """Media that `body` refers to by name; None: the body is complete."""

    facts: AnswerFacts | None = None
    """Filled in from the answer for the span of the attempt; None: nothing is traced."""

    orders: bool = False
    """Whether the engine got such an instruction, so that its answer can report the result."""

    def named(self, name: str) -> ForwardedRequest:
        """Return the request under a new name for the engines."""
        return msgspec.structs.replace(self, headers={**self.headers, "x-request-id": name})

    def traced(self, carried: Mapping[str, str], facts: AnswerFacts | None = None) -> ForwardedRequest:
        """Return the request as part of a span. `carried` are the span's headers, which replace the client's."""
        kept = {name: value for name, value in self.headers.items() if name not in TRACE_HEADERS}
        return msgspec.structs.replace(self, headers={**kept, **carried}, facts=facts)

    def ordered(self, order: LoadInstruction | None) -> ForwardedRequest:
        """Return the request with an instruction for its engine's KV connector."""
        if order is self.order and self.orders == (order is not None):
            return self
        return msgspec.structs.replace(self, order=order, orders=order is not None)

    def without(self, names: Collection[str]) -> ForwardedRequest:
        """Return the request without these fields of its body."""
        fields = _fields(self.body)
        if fields.keys().isdisjoint(names):
            return self
        kept = {name: value for name, value in fields.items() if name not in names}
        return msgspec.structs.replace(self, body=msgspec.json.encode(kept))

    def prefill_leg(self) -> ForwardedRequest:
        """Return the request for an engine that only computes the prefill."""
        body = prefill_body(_fields(self.body), self.endpoint.one_token or {}, self.order)
        return msgspec.structs.replace(self, body=body, order=None, facts=None)

    def decode_leg(self, transfer: msgspec.Raw, cached_tokens: int | None) -> ForwardedRequest:
        """Return the request for the engine that continues another one's prefill."""
        body = decode_body(_fields(self.body), transfer, self.order)
        shown = HIDDEN if self.cached_tokens == HIDDEN else cached_tokens
        return msgspec.structs.replace(self, body=body, cached_tokens=shown, handed_over=True, order=None)

    def bootstrap_legs(self, host: str, port: int, room: int) -> tuple[ForwardedRequest, ForwardedRequest]:
        """Return the request for SGLang's prefill and decode engines, which connect at this port under the number
        `room`.
        """
        bodies = bootstrap_legs(_fields(self.body), host, port, room)
        prefill, decode = (msgspec.structs.replace(self, body=body, order=None, orders=False) for body in bodies)
        return msgspec.structs.replace(prefill, streams=False, facts=None), decode

    def payload(self) -> tuple[bytes | AsyncIterator[memoryview], dict[str, str]]:
        """Return (body, its headers). The HTTP client sends this form of the body without one large copy."""
        body = self.body if self.order is None else with_order(self.body, self.order)
        if self.held is not None:
            return self.held.chunks(body), {"content-length": str(self.held.size(body))}
        if len(body) < _LARGE_BODY:
            return body, {}
        # The client would copy bytes, and those of an io.BytesIO, in one go.
        return in_pieces(body), {"content-length": str(len(body))}


def forwarded_request(
    endpoint: Endpoint,
    original: bytes,
    body: dict[str, Any],
    client_headers: Mapping[bytes, bytes],
    *,
    held: HeldBody | None = None,
    request_id: str,
    salt: str,
    priority: int | None = None,
    shows_hits: bool = True,
    max_tokens: int = 0,
    media_names: Sequence[str] = (),
    renamed: bool = False,
) -> ForwardedRequest:
    """Return the request for the engine, with the client's bytes if nothing in the body has to change.

    Unchanged values always keep their bytes, so that a long prompt is not encoded again. `media_names` are the names of
    a chat's media; vLLM reads names only in chats. `renamed`: the model's name in `body` replaces the client's.
    """
    ours: dict[str, Any] = {"cache_salt": salt} if salt else {}
    if renamed:
        ours["model"] = body["model"]
    if priority is not None:
        ours["priority"] = priority
    ours |= _plain(endpoint, body)
    if media_names and endpoint.path == CHAT:
        ours["messages"] = with_names(body["messages"], media_names)
    streams = endpoint.generates and lax_flag(body.get("stream")) is True
    options = body.get("stream_options")
    asked = not endpoint.asks_for_usage or (
        isinstance(options, dict) and lax_flag(options.get("include_usage")) is True
    )
    if streams and not asked:
        # Without include_usage an engine sends no usage at all, so usage per chunk was not requested either.
        theirs = options.items() if isinstance(options, dict) else ()
        others = {name: value for name, value in theirs if name != "continuous_usage_stats"}
        ours["stream_options"] = {**others, "include_usage": True}
    removed = REMOVED if shows_hits else _REMOVED_WHERE_HIDDEN
    if endpoint.is_form:
        # A form is passed on unchanged: it holds no field that only Headway sets.
        ours, removed = {}, frozenset()
    if held is not None:
        original = held.rest
    if ours or not removed.isdisjoint(body):
        kept = {name: value for name, value in _fields(original).items() if name not in removed}
        original = msgspec.json.encode({**kept, **ours})
    return ForwardedRequest(
        endpoint,
        original,
        _headers(client_headers, request_id, is_form=endpoint.is_form),
        streams,
        streams and not asked,
        max_tokens,
        None if shows_hits else HIDDEN,
        held=held,
    )


def _plain(endpoint: Endpoint, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the loosely typed fields (`"16"`, 16.0, 1 for true) in the strict form that every engine reads."""
    plain: dict[str, Any] = {}
    for name in (*endpoint.limits, "n", "best_of"):
        value = body.get(name)
        if value is not None and type(value) is not int and (number := lax_int(value)) is not None:
            plain[name] = number
    flag = lax_flag(body.get("stream"))
    if flag is not None and body["stream"] is not flag:
        plain["stream"] = flag
    return plain


def _headers(client_headers: Mapping[bytes, bytes], request_id: str, *, is_form: bool) -> dict[str, str]:
    headers = {
        # A form's type names its boundary.
        "content-type": client_headers[b"content-type"].decode("latin-1") if is_form else "application/json",
        # The answer is read and changed on its way, so that it must not be compressed.
        "accept-encoding": "identity",
        "user-agent": "headway",
        "x-request-id": request_id,
    }
    for name in PASSED_HEADERS:
        value = client_headers.get(name)
        if value is not None:
            headers[name.decode()] = value.decode("latin-1")
    return headers
