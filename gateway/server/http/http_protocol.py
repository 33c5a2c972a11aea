"""uvicorn's HTTP protocol with limits that an ASGI app cannot set, and with the fast path.

Use it as `uvicorn.Config(app, http=GuardedHttpProtocol)`. Incomplete heads get status 408, heads and trailers over
their limits 431, heads that another server could read differently 400, and connections over their limits 503; all are
closed. Trailer fields are dropped: only the head identifies the caller. If the app has a fast path
(sync_fast_path.py), complete decision requests are offered to it before a task is created. A head equal to one parsed
on this connection, except for the body's length, needs no new admission. If the body is short, its response is sent
together with others of the loop step (sync_fast_path.py).
"""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Any

from typing_extensions import override
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE
from uvicorn.server import ServerState

from gateway.base.event_log import log_event
from gateway.server.http.connection_limit import limit_of
from gateway.server.http.direct_stream import DirectProtocol
from gateway.server.http.sync_fast_path import (
    MAX_BODY_BYTES,
    TARGETS,
    FastAnswer,
    FastPath,
    KnownHead,
    coalescer_of,
    fast_path_of,
    header_lines,
)

HEAD_TIMEOUT_S = 10.0
REST_TIMEOUT_S = 5.0
"""Seconds for which a client can continue to send a body after its response; uvicorn itself has no limit."""
MAX_HEAD_BYTES = 64 * 1024
MAX_TRAILER_BYTES = 8 * 1024
MAX_KNOWN_HEADS = 32
MAX_KNOWN_HEAD_BYTES = 2048
MAX_HELD_BODY_BYTES = 8192
"""Reading a longer body costs more than a send, so its response is not delayed to join others."""
_HEAD_END = b"\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length: ([0-9]{1,9})(?=\r\n)", re.IGNORECASE)
_TOO_LARGE = b"431 Request Header Fields Too Large"


class _TooLargeError(Exception):
    """Stops the parsing of a head or of trailers over their limit."""


class _FaultyHeadError(Exception):
    """Stops the parsing of a head that RFC 9112 forbids but the parser accepts; the response is 400."""


class GuardedHttpProtocol(DirectProtocol):
    """uvicorn's protocol with limits on heads, trailers, and times, and with the fast path.

    Mutable: the attributes below, and those set by `__init__`.
    """

    head_timeout_s = HEAD_TIMEOUT_S
    rest_timeout_s = REST_TIMEOUT_S
    # The whole request has come; an answer may be out before that, and then this timer limits the rest.
    _whole = True
    _rest_timer: asyncio.TimerHandle | None = None
    # A head, or a body for the lane, is being read under `_timer`.
    _reading = True
    _in_head = True
    # Bytes: in the parser's hands; of the chunk in which the head began; since then, or since the last part of a body.
    _fed_bytes = 0
    _first_bytes = 0
    _gathered_bytes = 0
    _trailer_bytes = 0
    _timer: asyncio.TimerHandle | None = None
    # None: the request takes the ordinary way.
    _fast_body: bytes | None = None
    _chunk = b""
    # When a known head was answered last: the timer of idle connections need not restart each time.
    _answered_s = 0.0
    _idle_s = 0.0
    # An answer may be held, which has to go out before anything else is written here.
    _holds = False
    # None: it does not count towards the limit of connections.
    _source: str | None = None
    _upgraded = False

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._fast_path: FastPath | None = fast_path_of(config.loaded_app)
        # Admitted heads, without the length of their body.
        self._known: dict[bytes, KnownHead] = {}
        # The fields that were admitted last, without Content-Length, and their admission.
        self._fields: list[tuple[bytes, bytes]] = []
        self._admission: KnownHead | None = None
        self._writes = coalescer_of(self.loop)
        self._limit = limit_of(self.loop)

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn declares it
        super().connection_made(transport)
        address = self.client[0] if self.client else ""
        self._source = self._limit.enter(address, len(self.connections))
        if self._source is None:
            self._close_with(b"503 Service Unavailable\r\nretry-after: 1")
        else:
            self._arm()

    @property
    def used_s(self) -> float:
        """Return when it became idle, or was last used without the parser."""
        return max(self._idle_s, self._answered_s)

    def close_idle(self) -> None:
        """Close it without a response, as a server can close an idle connection at any time."""
        self._leave()
        self.transport.close()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self._rest_is_here()
        self._leave()
        super().connection_lost(exc)

    @override
    def handle_websocket_upgrade(self) -> None:
        # Later bytes are the other protocol's.
        self._upgraded = True
        self._leave()
        super().handle_websocket_upgrade()

    def _leave(self) -> None:
        if self._source is not None:
            self._limit.busy(self._source, self)
            self._limit.leave(self._source)
            self._source = None

    @override
    def data_received(self, data: bytes) -> None:
        whole = self._whole
        if whole and self._known and self._answer_known(data):
            return
        if self._holds:
            self._send_held()
        self._chunk = data if whole else b""
        self._fed_bytes = len(data)
        super().data_received(data)
        self._chunk = b""
        if not self._whole:
            # The parser reports a field only when it has ended.
            self._gathered_bytes += len(data)
            if self._gathered_bytes > (MAX_HEAD_BYTES if self._in_head else MAX_TRAILER_BYTES):
                self._close_with(_TOO_LARGE)
        if self._timer is None and (self._reading or (self.timeout_keep_alive_task is None and self._is_silent)):
            self._arm()

    @override
    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:
            super().on_header(name, value)
            return
        self._trailer_bytes += _field_bytes(name, value)
        if self._trailer_bytes > MAX_TRAILER_BYTES:
            self._reject_fields()

    def _reject_fields(self) -> None:
        self._close_with(_TOO_LARGE)
        raise _TooLargeError

    @override
    def send_400_response(self, msg: str) -> None:
        # A request that was rejected here has its answer; the parser only reports that it was stopped.
        if not self.transport.is_closing():
            super().send_400_response(msg)

    @override
    def eof_received(self) -> None:
        # The connection is closed next.
        self._send_held()
        super().eof_received()

    @override
    def shutdown(self) -> None:
        self._send_held()
        super().shutdown()

    def _send_held(self) -> None:
        self._holds = False
        self._writes.send()

    @override
    def on_message_begin(self) -> None:
        self._reading = self._in_head = True
        # The part of this chunk that belongs to the previous message is unknown.
        self._first_bytes = self._fed_bytes
        self._gathered_bytes = -self._fed_bytes
        self._trailer_bytes = 0
        self._whole = False
        if self._source is not None:
            self._limit.busy(self._source, self)
        if self._fast_path is None:
            super().on_message_begin()
            return
        # The ASGI scope is made when it is known to be needed.
        self.url = b""
        self.headers = []
        self.expect_100_continue = False

    @override
    def on_headers_complete(self) -> None:
        if self._first_bytes + self._gathered_bytes + self._fed_bytes > MAX_HEAD_BYTES and self._has_large_head():
            self._reject_fields()
        if self._is_faulty():
            raise _FaultyHeadError
        self._in_head = False
        self._gathered_bytes = -self._fed_bytes
        if self._fast_path is not None and self.url in TARGETS and self._may_take_fast_path():
            self._fast_body = b""
            return
        self._take_ordinary_way()

    @override
    def on_body(self, body: bytes) -> None:
        self._gathered_bytes = -self._fed_bytes
        if self._fast_body is None:
            super().on_body(body)
            return
        self._fast_body += body
        if len(self._fast_body) > MAX_BODY_BYTES:
            self._leave_fast_path()

    @override
    def on_message_complete(self) -> None:
        self._rest_is_here()
        body = self._fast_body
        if body is None or self._fast_path is None:
            super().on_message_complete()
            return
        admission, answer = self._ask(self._fast_path, None, body)
        if admission is None or answer is None:
            self._leave_fast_path()
            super().on_message_complete()
            return
        self._learn_head(admission, body)
        self._fast_body = None
        self._stop_reading()
        self._send(answer)

    @override
    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection, or check it again later if it was used without the parser meanwhile."""
        left_s = self._answered_s + self.timeout_keep_alive - self.loop.time()
        if left_s > 0:
            self._keep_alive_for(left_s)
        else:
            super().timeout_keep_alive_handler()

    def _keep_alive_for(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    @override
    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._source is not None and self._idle and self.timeout_keep_alive_task is not None:
            self._idle_s = self.loop.time()
            self._limit.idle(self._source, self)
        if not self._whole and not self.transport.is_closing():
            self._rest_timer = self.loop.call_later(self.rest_timeout_s, self.transport.close)

    def _rest_is_here(self) -> None:
        self._whole = True
        if self._rest_timer is not None:
            self._rest_timer.cancel()
            self._rest_timer = None

    def _has_large_head(self) -> bool:
        return len(self.url) + sum([_field_bytes(*field) for field in self.headers]) > MAX_HEAD_BYTES

    def _field(self, name: bytes) -> bytes:
        return next((value for field, value in self.headers if field == name), b"")

    def _is_faulty(self) -> bool:
        """Return whether another server in the chain could read the head differently.

        This is the case for a version other than 1.0 and 1.1, chunks in 1.0, a coding other than chunks, a fragment in
        the target, and a target whose host differs from Host.
        """
        version, target = self.parser.get_http_version(), self.url
        if version not in ("1.0", "1.1") or b"#" in target:
            return True
        coding = self._field(b"transfer-encoding").strip()
        if coding and (version == "1.0" or coding.lower() != b"chunked"):
            return True
        if target.startswith(b"/") or target == b"*":
            return False
        authority = b"://" + self._field(b"host").lower() + b"/"
        return not target.lower().startswith((b"http" + authority, b"https" + authority))

    def _may_take_fast_path(self) -> bool:
        """Return whether the request qualifies: a POST with a short body on an idle keep-alive connection."""
        parser = self.parser
        return (
            parser.get_method() == b"POST"
            and int(self._field(b"content-length") or b"0") <= MAX_BODY_BYTES
            and parser.should_keep_alive()
            and not parser.should_upgrade()
            and not self.expect_100_continue
            and self._idle
        )

    def _leave_fast_path(self) -> None:
        """Move the request to the normal path, with the part of its body that was read."""
        body = self._fast_body or b""
        self._fast_body = None
        self._take_ordinary_way()
        if body:
            super().on_body(body)

    def _take_ordinary_way(self) -> None:
        self._stop_reading()
        if self._fast_path is not None:
            url, headers, expect = self.url, self.headers, self.expect_100_continue
            super().on_message_begin()
            self.url, self.expect_100_continue = url, expect
            self.headers.extend(headers)
        super().on_headers_complete()

    def _ask(self, path: FastPath, known: KnownHead | None, body: bytes) -> tuple[KnownHead | None, FastAnswer | None]:
        """Offer the request to the fast path, with a known admission or the admission of the parsed headers."""
        try:
            admission = known or self._admitted(path)
            answer = None if admission is None else path.answer_at_once(admission, body)
        except Exception as error:  # noqa: BLE001 - the process edge: a fault here must not end the connection
            log_event("fast_path_failed", level=logging.ERROR, error=type(error).__name__)
            admission = answer = None
        if answer is None:
            self._admission = None
        return admission, answer

    def _admitted(self, fast_path: FastPath) -> KnownHead | None:
        """Return the admission of the parsed headers. Often only Content-Length differs between a proxy's requests."""
        fields = [(self.url, b""), *[field for field in self.headers if field[0] != b"content-length"]]
        if self._admission is None or fields != self._fields:
            self._fields, self._admission = fields, fast_path.admit(self.url, self.headers)
        return self._admission

    def _learn_head(self, admission: KnownHead, body: bytes) -> None:
        """Store the head of a request that arrived in one chunk, because the same bytes have the same meaning."""
        head, start, length = _split(self._chunk)
        if head and length == len(body) == len(self._chunk) - start and self._chunk.endswith(body):
            if len(self._known) >= MAX_KNOWN_HEADS:
                self._known.clear()
            self._known[head] = admission

    def _answer_known(self, data: bytes) -> bool:
        """Answer a chunk that is one complete request with a known head, without the parser. Return False if it must
        be parsed.
        """
        head, start, length = _split(data)
        admission = self._known.get(head)
        if admission is None or self._fast_path is None or not self._idle:
            return False
        if length > MAX_BODY_BYTES or len(data) != start + length:
            return False
        _, answer = self._ask(self._fast_path, admission, data[start:])
        if answer is None:
            del self._known[head]
            return False
        if length <= MAX_HELD_BODY_BYTES:
            self._writes.add(self.loop, self.transport, self._bytes_of(answer))
            self._holds = True
        else:
            self._send_held()
            self.transport.write(self._bytes_of(answer))
        self.server_state.total_requests += 1
        self._answered_s = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._keep_alive_for(self.timeout_keep_alive)
        return True

    @property
    def _idle(self) -> bool:
        """Return whether no response is in progress and the client reads."""
        return not self.flow.write_paused and not self.pipeline and (self.cycle is None or self.cycle.response_complete)

    @property
    def _is_silent(self) -> bool:
        """Return whether the bytes began no request: blank lines would keep a connection open without a timer."""
        return self._idle and not self._upgraded

    def _send(self, answer: FastAnswer) -> None:
        self.transport.write(self._bytes_of(answer))
        self.on_response_complete()

    def _bytes_of(self, answer: FastAnswer) -> bytes:
        body = answer.body
        default = self.server_state.default_headers
        head = header_lines(default) + answer.head if default else answer.head
        return b"%scontent-length: %d\r\n%s\r\n%s" % (STATUS_LINE[answer.status], len(body), head, body)

    def _arm(self) -> None:
        self._timer = self.loop.call_later(self.head_timeout_s, self._close_with, b"408 Request Timeout")

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _stop_reading(self) -> None:
        self._reading = False
        if self._timer is not None:
            self._disarm()

    def _close_with(self, status: bytes) -> None:
        self._disarm()
        if self.transport.is_closing():
            return
        cycle = self.cycle
        # Within another answer a status line would be read as part of its body.
        if not self.pipeline and (cycle is None or cycle.response_complete or not cycle.response_started):
            self.transport.write(b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        self.transport.close()


def _field_bytes(name: bytes, value: bytes) -> int:
    """Return the size of a header field on the wire."""
    return len(name) + len(value) + len(b": \r\n")


def _split(data: bytes) -> tuple[bytes, int, int]:
    """Return (head in `data` without the digits of its Content-Length, start of the body, those digits).

    The head is empty if it is too long for a known head or has no Content-Length.
    """
    end = data.find(_HEAD_END, 0, MAX_KNOWN_HEAD_BYTES)
    length = _LENGTH.search(data, 0, end + 2) if end > 0 else None
    if length is None:
        return b"", 0, 0
    first, last = length.span(1)
    return data[:first] + data[last:end], end + len(_HEAD_END), int(length[1])
