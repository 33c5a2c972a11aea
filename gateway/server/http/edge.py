"""The ASGI wrapper around everything that this process serves: the gateway's API and Django's pages.

It checks the Host header, assigns each request its id, decodes bodies, rejects oversized and stalled bodies before an
app buffers them, answers browsers' preflights, and reports errors in the format of the path's API. Time and size of a
request's *head* are limited by the protocol (gateway.server.http.http_protocol).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from gateway.base.asgi_types import AsgiApp, Message, Receive, Scope, Send
from gateway.base.settings import PROXY_BODY_LIMIT
from gateway.server.http.cors import Cors
from gateway.server.http.encoded_body import DecodedReceive, is_encoded
from gateway.server.http.engine_paths import takes_prompts
from gateway.server.http.error_formats import format_of
from gateway.server.http.guarded_receive import BodyRoom, BodyWatch, GuardedReceive, RejectedAtEdgeError, too_large
from gateway.server.http.http_exchange import JSON, NOSNIFF, Header
from gateway.server.http.request_head import SCOPE_KEY, RequestHead, new_id
from gateway.server.http.sync_fast_path import Headers, InnerFastPath, KnownHead

BODIES_IN_MEMORY = 8
"""Number of bodies of maximum size that concurrent requests can hold together."""
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")
MAX_KNOWN_HOSTS = 256
LINGER_S = 2.0
LINGER_BYTES = 32 * 1024 * 1024
_OF_ENCODED = (b"content-encoding", b"content-length", b"transfer-encoding")


@dataclass(frozen=True, slots=True)
class EdgeSettings:
    """Limits of the edge. Sizes in bytes, times in seconds.

    `allowed_hosts` are names without port. ".example.com" allows a domain and its subdomains, "*" any name.
    """

    allowed_hosts: tuple[str, ...] = LOOPBACK_HOSTS
    body_limit: int = 1024 * 1024
    proxy_body_limit: int = PROXY_BODY_LIMIT
    """Limit of a decoded body with a prompt."""
    long_bodies: tuple[str, ...] = ()
    """Further paths, besides the proxy's, that accept bodies of that size."""
    cors_origins: tuple[str, ...] = ()
    """Origins whose pages can call the inference API; "*": any."""
    stall_s: float = 10.0
    min_bytes_per_s: float = 16 * 1024.0


class Edge:
    """Wraps an ASGI app. `count` is called with the cause of each request that the edge rejects.

    `fast_path` (a GatewayApp) answers decisions without a task (gateway.server.http.sync_fast_path).
    """

    def __init__(
        self,
        app: AsgiApp,
        settings: EdgeSettings | None = None,
        count: Callable[[str], None] | None = None,
        *,
        fast_path: InnerFastPath | None = None,
    ) -> None:
        self._app = app
        self._settings = settings or EdgeSettings()
        self._count = count
        self.fast_path = _CheckedFastPath(self._check_head, fast_path) if fast_path is not None else None
        self._new_id = fast_path.new_id if fast_path is not None else new_id
        self._known_hosts: set[bytes] = set()
        self._watch = BodyWatch(self._settings.stall_s, self._settings.min_bytes_per_s)
        self._room = BodyRoom(BODIES_IN_MEMORY * self._settings.proxy_body_limit)
        self._cors = Cors(self._settings.cors_origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        kind = scope["type"]
        if kind == "http":
            await self._http(scope, receive, send)
        elif kind == "websocket":
            await self._websocket(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _check_head(self, headers: Headers) -> RequestHead | None:
        """Return the head if it passes the edge unchanged and carries no request id."""
        head = RequestHead(headers, self._new_id)
        # The fast path adds no CORS headers, and has no decoder.
        if head.given or b"origin" in head.headers or is_encoded(head.headers.get(b"content-encoding")):
            # A named request may be a repetition, which may have to wait for the first one's answer.
            return None
        try:
            self._check(head, self._settings.body_limit)
        except RejectedAtEdgeError:
            return None
        return head

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        head = scope[SCOPE_KEY] = RequestHead(scope["headers"], self._new_id)
        id_header = (b"x-request-id", head.request_id.encode())
        settings, path = self._settings, scope["path"]
        added = (id_header, *self._cors.headers(path, head))
        started = False

        def send_with_id(message: Message) -> Awaitable[None]:
            nonlocal started
            if not started:
                started = True
                message["headers"] = [*message.get("headers", ()), *added]
            return send(message)

        is_long = takes_prompts(path) or path in settings.long_bodies
        limit = settings.proxy_body_limit if is_long else settings.body_limit
        read = GuardedReceive(receive, limit, self._watch, self._room)
        try:
            self._check(head, limit)
            allowed = self._cors.preflight(path, scope["method"], head)
            if allowed is not None:
                await _answer_preflight(allowed, send_with_id)
                return
            encoding = head.headers.get(b"content-encoding")
            body: Receive = read
            if encoding is not None and is_encoded(encoding):
                body = DecodedReceive(read, encoding, limit)
                _forget_encoding(scope, head)
            await self._app(scope, body, send_with_id)
        except RejectedAtEdgeError as error:
            if started:
                raise
            await self._reject(path, error, receive, send_with_id)
        finally:
            read.release()

    def _check(self, head: RequestHead, limit: int) -> None:
        if head.repeats:
            raise RejectedAtEdgeError(
                400,
                "Send Host, Authorization, X-Api-Key, X-Headway-Client-* and Content-* once each.",
                "repeated_header",
            )
        headers = head.headers
        host = headers.get(b"host")
        if host is None or (host not in self._known_hosts and not self._allows(host)):
            raise RejectedAtEdgeError(
                400, "This Host is not allowed; add it to HEADWAY_ALLOWED_HOSTS.", "host_not_allowed"
            )
        length = headers.get(b"content-length")
        # Twenty digits are over any limit; int() raises for thousands of them.
        if length is not None and (not length.isdigit() or int(length[:20]) > limit):
            raise too_large(limit)

    def _allows(self, host: bytes) -> bool:
        name = _host_name(host)
        allowed = any(
            pattern in ("*", name) or (pattern.startswith(".") and (name.endswith(pattern) or name == pattern[1:]))
            for pattern in self._settings.allowed_hosts
        )
        if allowed and len(self._known_hosts) < MAX_KNOWN_HOSTS:
            self._known_hosts.add(host)
        return allowed

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        head = scope[SCOPE_KEY] = RequestHead(scope["headers"], self._new_id)
        host = head.headers.get(b"host")
        if host is not None and not head.repeats and (host in self._known_hosts or self._allows(host)):
            await self._app(scope, receive, send)
            return
        if self._count is not None:
            self._count("host_not_allowed")
        await receive()
        await send({"type": "websocket.close", "code": 4400})

    async def _reject(self, path: str, error: RejectedAtEdgeError, receive: Receive, send: Send) -> None:
        if self._count is not None:
            self._count(error.code)
        body = format_of(path).of(error)
        headers = [
            JSON,
            NOSNIFF,
            *error.headers,
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        ]
        await send({"type": "http.response.start", "status": error.status, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": True})
        # A close while the client still sends would reset the connection and lose our answer.
        if error.status != 408:
            await _linger(receive)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class _CheckedFastPath:
    """The app's fast path behind this edge, whose checks apply to the heads."""

    def __init__(self, check: Callable[[Headers], RequestHead | None], inner: InnerFastPath) -> None:
        self._check = check
        self._inner = inner
        self.answer_at_once = inner.answer_at_once

    def admit(self, target: bytes, headers: Headers) -> KnownHead | None:
        head = self._check(headers)
        return None if head is None else self._inner.admit(target, head)


async def _answer_preflight(allowed: tuple[Header, ...], send: Send) -> None:
    """Answer a preflight. An empty `allowed` means that its origin is not permitted."""
    if not allowed:
        text = "Pages of this origin cannot call this API; add it to HEADWAY_CORS_ORIGINS."
        raise RejectedAtEdgeError(403, text, "origin_not_allowed")
    await send({"type": "http.response.start", "status": 204, "headers": list(allowed)})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def _forget_encoding(scope: Scope, head: RequestHead) -> None:
    """Remove the headers of the encoded body: its length and encoding."""
    kept = [field for field in scope["headers"] if field[0] not in _OF_ENCODED]
    # A reader of the body must not mistake the missing length for a missing body.
    scope["headers"] = [*kept, (b"transfer-encoding", b"chunked")]
    for name in _OF_ENCODED:
        head.headers.pop(name, None)


async def _linger(receive: Receive) -> None:
    discarded = 0
    try:
        async with asyncio.timeout(LINGER_S):
            while discarded <= LINGER_BYTES:
                message = await receive()
                discarded += len(message.get("body", b""))
                if not message.get("more_body", False):
                    return
    except TimeoutError:
        return


def _host_name(host: bytes) -> str:
    text = host.decode("latin-1").strip().lower()
    if text.startswith("["):
        return text.partition("]")[0] + "]"
    return text.partition(":")[0].removesuffix(".")
