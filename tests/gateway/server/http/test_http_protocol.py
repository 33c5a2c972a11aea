"""Half-open, endless and pipelined requests on real sockets, which the fast path treats like the ordinary path."""

from __future__ import annotations

import asyncio
import json
import time

import msgspec
import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gateway.contracts.snapshot import encode_snapshot
from gateway.server.http.http_protocol import MAX_HELD_BODY_BYTES, GuardedHttpProtocol
from gateway.server.http.request_head import RequestHead
from gateway.server.http.sync_fast_path import MAX_BODY_BYTES, KnownHead
from tests.gateway.raw_http import RawConnection, post
from tests.gateway.served_gateway import KEY, MODEL, ServedGateway
from tests.patience import PATIENCE_S

AUTHORIZED = f"Authorization: Bearer {KEY}"
QUESTION = json.dumps({"model": MODEL, "block_hashes": [1, 2, 3], "wait": False}).encode()


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GuardedHttpProtocol, "head_timeout_s", 0.3)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("begin", [b"", b"GET /live HTT", b"GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: b\r\n"])
async def test_a_half_open_head_is_answered_with_408_and_closed(gateway: ServedGateway, begin: bytes) -> None:
    connection = await RawConnection.open(gateway.url)
    await connection.send(begin)
    async with asyncio.timeout(PATIENCE_S):
        status, _, _ = await connection.answer()
        assert status == 408
        assert await connection.closed()
    await connection.close()


@pytest.mark.usefixtures("hasty")
async def test_a_second_half_open_head_is_closed_too(gateway: ServedGateway) -> None:
    connection = await RawConnection.open(gateway.url)
    await connection.send(b"GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert (await connection.answer())[0] == 200
    await connection.send(b"GET /live HTTP/1.1\r\n")
    async with asyncio.timeout(PATIENCE_S):
        assert (await connection.answer())[0] == 408
    await connection.close()


@pytest.mark.usefixtures("hasty")
async def test_a_stalled_body_on_the_fast_path_is_answered_with_408(gateway: ServedGateway) -> None:
    connection = await RawConnection.open(gateway.url)
    await connection.send(post("/api/v1/route", QUESTION, AUTHORIZED)[:-5])
    async with asyncio.timeout(PATIENCE_S):
        assert (await connection.answer())[0] == 408
    await connection.close()


@pytest.mark.usefixtures("hasty")
async def test_blank_lines_do_not_keep_an_idle_connection(gateway: ServedGateway) -> None:
    connection = await RawConnection.open(gateway.url)
    await connection.send(b"GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert (await connection.answer())[0] == 200
    await connection.send(b"\r\n")
    async with asyncio.timeout(PATIENCE_S):
        assert (await connection.answer())[0] == 408
        assert await connection.closed()
    await connection.close()


async def test_a_body_that_trickles_on_after_its_response_is_cut_off(
    gateway: ServedGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GuardedHttpProtocol, "rest_timeout_s", 0.3)
    connection = await RawConnection.open(gateway.url)
    await connection.send(b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n{")
    assert (await connection.answer())[0] == 401

    async def dribble() -> None:
        while True:
            await connection.send(b"a")
            await asyncio.sleep(0.05)

    dribbling = asyncio.create_task(dribble())
    async with asyncio.timeout(PATIENCE_S):
        assert await connection.closed()
    dribbling.cancel()
    await asyncio.gather(dribbling, return_exceptions=True)
    await connection.close()


async def test_a_body_that_completes_after_its_response_keeps_the_connection(
    gateway: ServedGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GuardedHttpProtocol, "rest_timeout_s", 0.3)
    connection = await RawConnection.open(gateway.url)
    await connection.send(b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 4\r\n\r\n{")
    assert (await connection.answer())[0] == 401
    await connection.send(b"aaa")
    await asyncio.sleep(0.5)
    await connection.send(b"GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert (await connection.answer())[0] == 200
    await connection.close()


@pytest.mark.usefixtures("hasty")
async def test_slow_heads_do_not_disturb_others(gateway: ServedGateway) -> None:
    slow = [await RawConnection.open(gateway.url) for _ in range(50)]
    for connection in slow:
        await connection.send(b"GET /live HTTP/1.1\r\n")
    assert (await gateway.get("/live"))[0] == 200
    async with asyncio.timeout(PATIENCE_S):
        assert all([(await connection.answer())[0] == 408 for connection in slow])
    for connection in slow:
        await connection.close()


CHUNKED = b"%x\r\n%s\r\n0\r\n\r\n" % (len(QUESTION), QUESTION)


@pytest.mark.parametrize(
    ("head", "body"),
    [
        (f"POST /api/v1/route HTTP/1.0\r\n{AUTHORIZED}\r\nTransfer-Encoding: chunked", CHUNKED),
        (f"POST /v1/completions HTTP/1.0\r\n{AUTHORIZED}\r\nTransfer-Encoding: chunked", CHUNKED),
        (f"POST /api/v1/route HTTP/1.1\r\n{AUTHORIZED}\r\nTransfer-Encoding: gzip, chunked", CHUNKED),
        ("GET /live#/metrics HTTP/1.1", b""),
        ("GET /live?a#b HTTP/1.1", b""),
        ("GET /live HTTP/2.0", b""),
        ("GET /live HTTP/0.9", b""),
        ("GET http://evil.example/live HTTP/1.1", b""),
        ("GET http://127.0.0.1@evil.example/live HTTP/1.1", b""),
        ("GET ftp://127.0.0.1/live HTTP/1.1", b""),
    ],
)
async def test_an_ambiguous_head_is_rejected(gateway: ServedGateway, head: str, body: bytes) -> None:
    connection = await RawConnection.open(gateway.url)
    await connection.send(head.encode() + b"\r\nHost: 127.0.0.1\r\n\r\n" + body)
    async with asyncio.timeout(PATIENCE_S):
        assert (await connection.answer())[0] == 400
        assert await connection.closed()
    await connection.close()


@pytest.mark.parametrize(("target", "status"), [("http://127.0.0.1/live", 200), ("/live%23", 404), ("*", 404)])
async def test_an_absolute_url_and_an_escaped_hash_are_valid_targets(
    gateway: ServedGateway, target: str, status: int
) -> None:
    connection = await RawConnection.open(gateway.url)
    await connection.send(f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    async with asyncio.timeout(PATIENCE_S):
        assert (await connection.answer())[0] == status
    await connection.close()


async def test_an_endless_head_is_cut_off(gateway: ServedGateway) -> None:
    connection = await RawConnection.open(gateway.url)
    await connection.send(b"GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\n")
    async with asyncio.timeout(PATIENCE_S):
        try:
            for number in range(40):
                await connection.send(b"X-Filler-%d: " % number + b"y" * 8000 + b"\r\n")
                await asyncio.sleep(0)
            status, _, _ = await connection.answer()
        except (ConnectionError, asyncio.IncompleteReadError):
            status = 431
    assert status == 431
    await connection.close()


@pytest.mark.parametrize("cut", [1, 30, 150, -1])
async def test_a_request_in_two_fragments_is_answered(gateway: ServedGateway, cut: int) -> None:
    request = post("/api/v1/route", QUESTION, AUTHORIZED)
    connection = await RawConnection.open(gateway.url)
    await connection.send(request[:cut])
    await asyncio.sleep(0.02)
    await connection.send(request[cut:])
    status, headers, body = await connection.answer()
    assert status == 200
    assert headers["x-headway-decision"] == json.loads(body)["decision_id"] == headers["x-request-id"]
    await connection.close()


async def test_pipelined_requests_are_answered_in_order(gateway: ServedGateway) -> None:
    connection = await RawConnection.open(gateway.url)
    waiting = json.dumps({"model": MODEL, "block_hashes": [9], "wait": True}).encode()
    unknown = json.dumps({"model": "none", "block_hashes": [9], "wait": False}).encode()
    requests = [QUESTION, waiting, QUESTION, unknown, QUESTION]
    await connection.send(b"".join(post("/api/v1/route", body, AUTHORIZED) for body in requests))
    assert [(await connection.answer())[0] for _ in requests] == [200, 200, 200, 404, 200]
    await connection.close()


async def test_a_body_too_big_for_the_fast_path_takes_the_ordinary_path(gateway: ServedGateway) -> None:
    body = {"model": MODEL, "block_hashes": [1] * (MAX_BODY_BYTES // 2), "wait": False, "prompt_tokens": 16}
    status, answer, _ = await gateway.post("/api/v1/route", body)
    assert status == 200
    assert answer["key_source"] == "hashes"


async def test_connection_close_is_honored(gateway: ServedGateway) -> None:
    connection = await RawConnection.open(gateway.url)
    await connection.send(post("/api/v1/route", QUESTION, AUTHORIZED, "Connection: close"))
    assert (await connection.answer())[0] == 200
    assert await connection.closed()
    await connection.close()


@pytest.mark.parametrize(
    ("headers", "host", "status"),
    [
        ((), "127.0.0.1", 401),
        (("Authorization: Bearer hw_wrong",), "127.0.0.1", 401),
        ((AUTHORIZED,), "evil.example", 400),
        ((AUTHORIZED, "Content-Encoding: br"), "127.0.0.1", 415),
        ((AUTHORIZED, "X-Request-Id: mine"), "127.0.0.1", 200),
        ((AUTHORIZED, "Expect: 100-continue"), "127.0.0.1", 100),
    ],
)
async def test_the_fast_path_leaves_unusual_requests_to_the_ordinary_path(
    gateway: ServedGateway, headers: tuple[str, ...], host: str, status: int
) -> None:
    connection = await RawConnection.open(gateway.url)
    await connection.send(post("/api/v1/route", QUESTION, *headers, host=host))
    assert (await connection.answer())[0] == status
    await connection.close()


async def test_an_error_in_the_fast_path_is_answered_by_the_ordinary_path(
    gateway: ServedGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(gateway.app._route_api, "at_once", broken)
    status, _, _ = await gateway.post("/api/v1/route", QUESTION)
    assert status == 200


async def test_a_large_chunked_body_gets_its_413_without_a_reset(gateway: ServedGateway) -> None:
    connection = await RawConnection.open(gateway.url)
    start = "POST /api/v1/observe HTTP/1.1\r\nHost: 127.0.0.1"
    await connection.send(f"{start}\r\n{AUTHORIZED}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    async with asyncio.timeout(PATIENCE_S):
        for _ in range(40):
            await connection.send(chunk)
        status, _, body = await connection.answer()
    assert status == 413
    assert json.loads(body)["error"]["code"] == "body_too_large"
    await connection.close()


async def ask(connection: RawConnection, *pieces: bytes) -> int:
    for piece in pieces:
        await connection.send(piece)
        await asyncio.sleep(0.02)
    async with asyncio.timeout(PATIENCE_S):
        return (await connection.answer())[0]


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Record the chunks that the parser had to read."""
    read: list[bytes] = []
    whole = HttpToolsProtocol.data_received

    def note(self: HttpToolsProtocol, data: bytes) -> None:
        read.append(data)
        whole(self, data)

    monkeypatch.setattr(HttpToolsProtocol, "data_received", note)
    return read


async def test_a_known_head_is_not_parsed_again(gateway: ServedGateway, parsed: list[bytes]) -> None:
    connection = await RawConnection.open(gateway.url)
    question = post("/api/v1/route", QUESTION, AUTHORIZED)
    ids = set()
    for _ in range(3):
        await connection.send(question)
        status, headers, body = await connection.answer()
        assert status == 200
        assert headers["x-headway-decision"] == headers["x-request-id"] == json.loads(body)["decision_id"]
        ids.add(headers["x-request-id"])
    assert len(ids) == 3
    assert parsed == [question]
    await connection.close()


async def test_a_head_is_known_whatever_the_length_of_its_body(gateway: ServedGateway, parsed: list[bytes]) -> None:
    connection = await RawConnection.open(gateway.url)
    first = post("/api/v1/route", QUESTION, AUTHORIZED)
    assert await ask(connection, first) == 200
    for blanks in (1, 1000, MAX_BODY_BYTES - len(QUESTION)):
        assert await ask(connection, post("/api/v1/route", QUESTION + b" " * blanks, AUTHORIZED)) == 200
    # A long body may come in pieces, which only the parser puts together.
    assert b"".join(parsed[1:]) in (b"", post("/api/v1/route", QUESTION.ljust(MAX_BODY_BYTES), AUTHORIZED))
    too_long = post("/api/v1/route", QUESTION.ljust(MAX_BODY_BYTES + 1), AUTHORIZED)
    assert await ask(connection, too_long) == 200
    assert b"".join(parsed).endswith(too_long)
    await connection.close()


@pytest.mark.parametrize("length", [b"+85", b"8 5", b"0x55", b"85, 85", b"-85", b"85\r\nContent-Length: 85"])
async def test_a_known_head_with_a_bad_length_is_rejected(gateway: ServedGateway, length: bytes) -> None:
    connection = await RawConnection.open(gateway.url)
    question = post("/api/v1/route", QUESTION, AUTHORIZED)
    assert await ask(connection, question) == 200
    digits = b"%d" % len(QUESTION)
    assert question.lower().count(b"content-length: " + digits) == 1
    assert await ask(connection, question.replace(digits + b"\r\n", length + b"\r\n", 1)) == 400
    await connection.close()


async def test_alternating_short_and_long_requests_are_answered_in_order(gateway: ServedGateway) -> None:
    connection = await RawConnection.open(gateway.url)
    short = post("/api/v1/route", QUESTION, AUTHORIZED)
    long = post("/api/v1/route", b"{" + b" " * 2 * MAX_HELD_BODY_BYTES + QUESTION[1:], AUTHORIZED)
    assert await ask(connection, short) == 200
    for question in (short, long, short, long, post("/api/v1/route", b"{", AUTHORIZED)):
        await connection.send(question)
    async with asyncio.timeout(PATIENCE_S):
        assert [(await connection.answer())[0] for _ in range(5)] == [200, 200, 200, 200, 400]
    await connection.close()


async def test_a_known_head_that_is_fragmented_or_pipelined_is_read_by_the_parser(
    gateway: ServedGateway, parsed: list[bytes]
) -> None:
    connection = await RawConnection.open(gateway.url)
    question = post("/api/v1/route", QUESTION, AUTHORIZED)
    assert await ask(connection, question) == 200
    assert await ask(connection, question[:50], question[50:]) == 200
    assert await ask(connection, question + question) == 200
    async with asyncio.timeout(PATIENCE_S):
        assert (await connection.answer())[0] == 200
    assert b"".join(parsed) == question * 4
    # The end of one request and the whole of the next come in one chunk: the parser is in the middle.
    assert await ask(connection, question[:-1], question[-1:] + question) == 200
    async with asyncio.timeout(PATIENCE_S):
        assert (await connection.answer())[0] == 200
    assert b"".join(parsed) == question * 6
    await connection.close()


async def test_a_body_that_contains_a_known_request_is_only_a_body(gateway: ServedGateway) -> None:
    connection = await RawConnection.open(gateway.url)
    question = post("/api/v1/route", QUESTION, AUTHORIZED)
    assert await ask(connection, question) == 200
    decisions = gateway.metrics
    before = await decisions()
    outer = post("/api/v1/route", question, AUTHORIZED)
    assert await ask(connection, outer[: -len(question)], question) == 400
    after = await decisions()
    count = "headway_decisions_total"
    assert [line for line in before.splitlines() if line.startswith(count)] == [
        line for line in after.splitlines() if line.startswith(count)
    ]
    await connection.close()


async def test_a_known_head_expires_with_its_key(gateway: ServedGateway) -> None:
    connection = await RawConnection.open(gateway.url)
    question = post("/api/v1/route", QUESTION, AUTHORIZED)
    assert await ask(connection, question) == 200
    in_force = gateway.gateway.snapshot
    assert in_force is not None
    revoked = msgspec.structs.replace(in_force, version=in_force.version + 1, published_at=time.time(), api_keys=())
    gateway.gateway._take_snapshot(encode_snapshot(revoked))
    assert await ask(connection, question) == 401
    await connection.close()


async def test_admitted_header_fields_are_read_once_and_expire_with_their_key(
    gateway: ServedGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    admit, admitted = gateway.app.admit, []

    def noted(target: bytes, head: RequestHead) -> KnownHead | None:
        admitted.append(target)
        return admit(target, head)

    monkeypatch.setattr(gateway.app, "admit", noted)
    connection = await RawConnection.open(gateway.url)
    for blanks in range(3):
        assert await ask(connection, post("/api/v1/route", QUESTION + b" " * blanks, AUTHORIZED)) == 200
    assert len(admitted) == 1
    assert await ask(connection, post("/api/v1/route?wait=false", QUESTION, AUTHORIZED)) == 200
    assert (
        await ask(connection, post("/api/v1/route?wait=false", QUESTION + b" ", "Authorization: Bearer hw_no")) == 401
    )
    assert len(admitted) == 3
    in_force = gateway.gateway.snapshot
    assert in_force is not None
    revoked = msgspec.structs.replace(in_force, version=in_force.version + 1, published_at=time.time(), api_keys=())
    gateway.gateway._take_snapshot(encode_snapshot(revoked))
    assert await ask(connection, post("/api/v1/route", QUESTION + b" " * 9, AUTHORIZED)) == 401
    await connection.close()


async def test_a_known_head_with_a_bad_body_gets_its_error(gateway: ServedGateway) -> None:
    connection = await RawConnection.open(gateway.url)
    question = post("/api/v1/route", QUESTION, AUTHORIZED)
    assert await ask(connection, question) == 200
    assert await ask(connection, post("/api/v1/route", b"x" * len(QUESTION), AUTHORIZED)) == 400
    assert await ask(connection, question) == 200
    await connection.close()


async def test_an_idle_connection_is_closed_even_if_its_last_requests_bypassed_the_parser(
    gateway: ServedGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = GuardedHttpProtocol.connection_made

    def impatient(self: GuardedHttpProtocol, transport: asyncio.Transport) -> None:
        self.timeout_keep_alive = 0.4  # type: ignore[assignment]
        opened(self, transport)

    monkeypatch.setattr(GuardedHttpProtocol, "connection_made", impatient)
    connection = await RawConnection.open(gateway.url)
    question = post("/api/v1/route", QUESTION, AUTHORIZED)
    for _ in range(6):
        assert await ask(connection, question) == 200
        await asyncio.sleep(0.15)
    async with asyncio.timeout(PATIENCE_S):
        assert await connection.closed()
    await connection.close()
