"""The edge rejects requests that no app should see, and forwards others with an id."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import Any

import pytest

from gateway.base.asgi_types import Message, Receive, Scope, Send
from gateway.server.http.edge import BODIES_IN_MEMORY, Edge, EdgeSettings
from gateway.server.http.guarded_receive import FREE_BYTES
from gateway.server.http.request_head import SCOPE_KEY
from tests.patience import PATIENCE_S

LIMIT = 1000


class Echo:
    """An app that reads the whole body and responds with its length."""

    def __init__(self) -> None:
        self.scopes: list[Scope] = []
        self.bodies: list[bytes] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)
        if scope["type"] != "http":
            return
        body = b""
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        self.bodies.append(body)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})


class Visit:
    """One request to an edge, with the messages that came back."""

    def __init__(self, chunks: list[bytes], *, stall: bool = False) -> None:
        self._messages = [
            {"type": "http.request", "body": chunk, "more_body": number < len(chunks) - 1 or stall}
            for number, chunk in enumerate(chunks)
        ]
        self.sent: list[Message] = []

    async def receive(self) -> Message:
        """Return the next chunk, and nothing after the last."""
        if self._messages:
            return self._messages.pop(0)
        await asyncio.sleep(60)
        raise AssertionError("nobody waits that long")

    async def send(self, message: Message) -> None:
        """Store the sent message."""
        self.sent.append(message)

    @property
    def status(self) -> int:
        """Return the response status."""
        return int(self.sent[0]["status"])

    @property
    def headers(self) -> dict[bytes, bytes]:
        """Return the response headers."""
        return dict(self.sent[0]["headers"])

    @property
    def code(self) -> str:
        """Return the error code in the response."""
        body = b"".join(message.get("body", b"") for message in self.sent[1:])
        return str(json.loads(body)["error"]["code"])


def _scope(path: str = "/api/v1/pools", host: bytes | None = b"127.0.0.1:8000", **headers: str) -> dict[str, Any]:
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    if host is not None:
        pairs.append((b"host", host))
    return {"type": "http", "method": "POST", "path": path, "headers": pairs}


async def _visit(
    scope: dict[str, Any], chunks: list[bytes], *, stall: bool = False, **settings: Any
) -> tuple[Visit, Echo, list[str]]:
    echo = Echo()
    counted: list[str] = []
    edge = Edge(echo, EdgeSettings(**{"body_limit": LIMIT, "proxy_body_limit": 5 * LIMIT, **settings}), counted.append)
    visit = Visit(chunks, stall=stall)
    await edge(scope, visit.receive, visit.send)
    return visit, echo, counted


@pytest.mark.parametrize(
    "host", [b"localhost", b"LOCALHOST:80", b"127.0.0.1", b"127.0.0.1:8000", b"[::1]:8000", b"localhost.:1"]
)
async def test_loopback_names_are_served_by_default(host: bytes) -> None:
    visit, _, counted = await _visit(_scope(host=host), [b""])
    assert visit.status == 200
    assert counted == []


@pytest.mark.parametrize(
    "host", [None, b"evil.example", b"localhost.evil.example", b"evil.example:127.0.0.1", b"", b"\xff"]
)
async def test_other_hosts_are_rejected_and_counted(host: bytes | None) -> None:
    visit, echo, counted = await _visit(_scope(host=host), [b""])
    assert (visit.status, visit.code) == (400, "host_not_allowed")
    assert counted == ["host_not_allowed"]
    assert echo.scopes == []


@pytest.mark.parametrize(
    ("host", "served"),
    [(b"a.example.com", True), (b"example.com:1", True), (b"badexample.com", False), (b"gate.test", True)],
)
async def test_the_allow_list_accepts_names_and_domains(host: bytes, served: bool) -> None:
    visit, _, _ = await _visit(_scope(host=host), [b""], allowed_hosts=(".example.com", "gate.test"))
    assert (visit.status == 200) == served


@pytest.mark.parametrize("offered", ["job-7.a:b_c", "x" * 128, 'Root=1-67891233-abc;"a/b"=~'])
async def test_a_request_id_of_visible_ascii_is_kept_and_echoed(offered: str) -> None:
    visit, echo, _ = await _visit(_scope(x_request_id=offered), [b""])
    assert visit.headers[b"x-request-id"] == offered.encode()
    assert echo.scopes[0][SCOPE_KEY].client_request_id == offered


@pytest.mark.parametrize("offered", ["", "x" * 129, "two words", "né", "a\x1bb", "a\x7f"])
async def test_any_other_request_id_is_replaced(offered: str) -> None:
    visit, echo, _ = await _visit(_scope(x_request_id=offered), [b""])
    made = visit.headers[b"x-request-id"].decode()
    assert made != offered
    assert len(made) == 36
    assert made[14] == "7"  # the version digit of a UUID
    assert echo.scopes[0][SCOPE_KEY].client_request_id == ""


async def test_a_body_at_the_limit_passes() -> None:
    visit, echo, _ = await _visit(_scope(content_length=str(LIMIT)), [b"x" * LIMIT])
    assert visit.status == 200
    assert echo.bodies == [b"x" * LIMIT]


@pytest.mark.parametrize("length", [str(LIMIT + 1), "9" * 30, "-1", "1e3"])
async def test_a_declared_length_over_the_limit_is_rejected_unread(length: str) -> None:
    visit, echo, counted = await _visit(_scope(content_length=length), [b"x"])
    assert (visit.status, visit.code) == (413, "body_too_large")
    assert echo.scopes == []
    assert counted == ["body_too_large"]
    assert visit.headers[b"connection"] == b"close"


async def test_a_body_without_length_is_cut_off_at_the_limit() -> None:
    visit, echo, counted = await _visit(_scope(), [b"x" * 600] * 3)
    assert visit.status == 413
    assert echo.bodies == []
    assert counted == ["body_too_large"]


async def test_the_proxy_has_a_separate_limit() -> None:
    allowed, _, _ = await _visit(_scope("/v1/chat/completions"), [b"x" * 5 * LIMIT])
    rejected, _, _ = await _visit(_scope("/v1/chat/completions"), [b"x" * 5 * LIMIT, b"x"])
    assert (allowed.status, rejected.status) == (200, 413)


@pytest.mark.parametrize("encoding", ["br", "deflate", "identity, gzip", "gzip, zstd"])
async def test_bodies_in_unknown_encodings_are_rejected(encoding: str) -> None:
    visit, echo, _ = await _visit(_scope(content_encoding=encoding), [b"x"])
    assert (visit.status, visit.code) == (415, "encoded_body")
    assert visit.headers[b"accept-encoding"] == b"gzip, zstd"
    assert echo.scopes == []


async def test_apps_behind_the_edge_see_no_encoding() -> None:
    data = gzip.compress(b"x" * LIMIT)
    scope = _scope("/pages", content_encoding="gzip", content_length=str(len(data)), content_type="text/plain")
    visit, echo, _ = await _visit(scope, [data])
    assert visit.status == 200
    names = [name for name, _ in echo.scopes[0]["headers"]]
    assert names == [b"content-type", b"host", b"transfer-encoding"]
    too_long, _, _ = await _visit(_scope("/pages", content_encoding="gzip"), [gzip.compress(b"x" * (LIMIT + 1))])
    assert (too_long.status, too_long.code) == (413, "body_too_large")


async def test_bodies_being_read_share_a_memory_limit() -> None:
    """Eight bodies of the largest size fit; a ninth is rejected until one of them ends."""
    big = FREE_BYTES * 3
    over = asyncio.Event()
    reads: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        reads.append(len((await receive())["body"]))
        await over.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    edge = Edge(app, EdgeSettings(proxy_body_limit=big))
    room = BODIES_IN_MEMORY * big // (big - FREE_BYTES)
    visits = [Visit([b"x" * big]) for _ in range(room + 1)]
    tasks = [asyncio.create_task(edge(_scope("/v1/x"), visit.receive, visit.send)) for visit in visits]
    async with asyncio.timeout(PATIENCE_S):
        await tasks[-1]
    assert (len(reads), visits[-1].status, visits[-1].code) == (room, 503, "bodies_full")
    assert visits[-1].headers[b"retry-after"] == b"1"
    over.set()
    await asyncio.gather(*tasks)
    again = Visit([b"x" * big])
    await edge(_scope("/v1/x"), again.receive, again.send)
    assert again.status == 200


async def test_identity_counts_as_no_encoding() -> None:
    visit, _, _ = await _visit(_scope(content_encoding="Identity"), [b"x"])
    assert visit.status == 200


async def test_a_body_that_stalls_is_answered_with_408() -> None:
    visit, echo, counted = await _visit(_scope(), [b"x"], stall=True, stall_s=1.2)
    assert (visit.status, visit.code) == (408, "body_timeout")
    assert echo.bodies == []
    assert counted == ["body_timeout"]


async def test_a_body_that_trickles_in_is_answered_with_408() -> None:
    class Drip(Visit):
        async def receive(self) -> Message:
            await asyncio.sleep(0.05)
            return {"type": "http.request", "body": b"x", "more_body": True}

    edge = Edge(Echo(), EdgeSettings(stall_s=1.2))
    drip = Drip([])
    async with asyncio.timeout(PATIENCE_S):
        await edge(_scope(), drip.receive, drip.send)
    assert drip.status == 408


async def test_waiting_for_a_disconnect_after_the_body_is_not_a_stall() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        async with asyncio.timeout(2.0):
            await receive()

    visit = Visit([b""])
    with pytest.raises(TimeoutError):
        await Edge(app, EdgeSettings(stall_s=1.0))(_scope(), visit.receive, visit.send)


async def test_a_cancelled_request_stays_cancelled() -> None:
    visit = Visit([b"x"], stall=True)
    task = asyncio.create_task(Edge(Echo(), EdgeSettings())(_scope(), visit.receive, visit.send))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_lifespan_events_pass_through() -> None:
    _, echo, _ = await _visit({"type": "lifespan"}, [])
    assert [scope["type"] for scope in echo.scopes] == ["lifespan"]


@pytest.mark.parametrize(("host", "served"), [(b"127.0.0.1:8000", True), (b"evil.example", False), (None, False)])
async def test_the_host_of_websockets_is_checked(host: bytes | None, served: bool) -> None:
    scope = {**_scope("/ws/fleet", host), "type": "websocket"}
    visit, echo, counted = await _visit(scope, [b""])
    assert bool(echo.scopes) == served
    assert counted == ([] if served else ["host_not_allowed"])
    assert [message["type"] for message in visit.sent] == ([] if served else ["websocket.close"])
