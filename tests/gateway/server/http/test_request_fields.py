"""Only the head of a request identifies its sender and destination: no trailers and no duplicate fields."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.base.asgi_types import Receive, Scope, Send
from gateway.server.http.edge import Edge, EdgeSettings
from gateway.server.http.http_protocol import MAX_HEAD_BYTES, MAX_TRAILER_BYTES, GuardedHttpProtocol
from tests.gateway.raw_http import RawConnection, served_app
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import KEY, MODEL, ServedGateway, served
from tests.patience import PATIENCE_S

AUTHORIZED = f"Authorization: Bearer {KEY}".encode()
QUESTION = f'{{"model":"{MODEL}","block_hashes":[1,2,3],"wait":false}}'.encode()
CHAT = f'{{"model":"{MODEL}","messages":[{{"role":"user","content":"hi"}}]}}'.encode()
WAYS = {"/api/v1/route": QUESTION, "/v1/chat/completions": CHAT}
CRLF = b"\r\n"


def chunked(way: str, body: bytes, trailers: tuple[bytes, ...], *head: bytes) -> bytes:
    lines = [f"POST {way} HTTP/1.1".encode(), b"Host: 127.0.0.1", *head, b"Transfer-Encoding: chunked", b""]
    pieces = [b"%x" % len(body), body] if body else []
    return CRLF.join([*lines, *pieces, b"0", *trailers, b"", b""])


async def status_of(url: str, request: bytes) -> int:
    connection = await RawConnection.open(url)
    try:
        await connection.send(request)
        async with asyncio.timeout(PATIENCE_S):
            return (await connection.answer())[0]
    finally:
        await connection.close()


@pytest.mark.parametrize("way", WAYS)
async def test_a_key_in_a_trailer_does_not_authenticate(gateway: ServedGateway, way: str) -> None:
    assert await status_of(gateway.url, chunked(way, WAYS[way], (AUTHORIZED,))) == 401
    wrong = b"Authorization: Bearer hw_wrong"
    assert await status_of(gateway.url, chunked(way, WAYS[way], (AUTHORIZED,), wrong)) == 401


@pytest.mark.parametrize("way", WAYS)
async def test_trailers_do_not_change_the_request(gateway: ServedGateway, way: str) -> None:
    trailers = (b"Authorization: Bearer hw_wrong", b"Host: evil.example", b"Content-Encoding: gzip", b"X-Checksum: 1")
    assert await status_of(gateway.url, chunked(way, WAYS[way], trailers, AUTHORIZED)) == 200


@pytest.mark.parametrize("way", [*WAYS, "/live", "/elsewhere"])
@pytest.mark.parametrize("filler", [b"x: " + b"a" * 5000 + CRLF, b"a" * 5000], ids=["fields", "one field"])
async def test_endless_trailers_end_the_connection(gateway: ServedGateway, way: str, filler: bytes) -> None:
    connection = await RawConnection.open(gateway.url)
    begin = chunked(way, b"", (b"x: ",), AUTHORIZED)[:-4]
    sent = 0
    async with asyncio.timeout(PATIENCE_S):
        await connection.send(begin)
        try:
            while sent < 64 << 20 and not connection.ended:
                await connection.send(filler)
                sent += len(filler)
                await asyncio.sleep(0)
        except ConnectionError:
            pass
    assert sent < 8 << 20
    await connection.close()


async def test_trailers_over_their_limit_are_answered_with_431(gateway: ServedGateway) -> None:
    large = b"x: " + b"a" * MAX_TRAILER_BYTES
    assert await status_of(gateway.url, chunked("/api/v1/route", QUESTION, (large,), AUTHORIZED)) == 431


async def test_apps_never_see_trailers() -> None:
    seen: list[list[tuple[bytes, bytes]]] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass
        seen.append(list(scope["headers"]))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    trailers = (b"X-Forwarded-For: 10.0.0.1", b"X-Forwarded-Proto: https", b"Cookie: sessionid=1", b"Host: evil")
    async with served_app(Edge(app)) as url:
        assert await status_of(url, chunked("/login", b"a=b", trailers)) == 200
    assert [name for name, _ in seen[0]] == [b"host", b"transfer-encoding"]


@pytest.mark.parametrize("name", ["Host", "Authorization", "Content-Type", "Content-Encoding"])
async def test_a_duplicate_of_a_singleton_field_is_rejected(gateway: ServedGateway, name: str) -> None:
    values = {"Host": "127.0.0.1", "Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    line = f"{name}: {values.get(name, 'identity')}".encode()
    twice = (line,) if name == "Host" else (line, line)
    head = [line for line in (AUTHORIZED,) if name != "Authorization"]
    assert await status_of(gateway.url, chunked("/api/v1/route", QUESTION, (), *head, *twice)) == 400


@pytest.mark.parametrize(("value_bytes", "status"), [(MAX_HEAD_BYTES - 200, 200), (MAX_HEAD_BYTES + 1, 431)])
@pytest.mark.parametrize("piece", [1 << 20, 30_000])
async def test_a_head_is_read_up_to_its_limit(
    gateway: ServedGateway, value_bytes: int, status: int, piece: int
) -> None:
    request = b"GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: " + b"a" * value_bytes + b"\r\n\r\n"
    connection = await RawConnection.open(gateway.url)
    for start in range(0, len(request), piece):
        await connection.send(request[start : start + piece])
        await asyncio.sleep(0.02)
    async with asyncio.timeout(PATIENCE_S):
        assert (await connection.answer())[0] == status
    await connection.close()


async def test_a_short_head_after_a_long_body_in_one_chunk_is_not_a_long_head(gateway: ServedGateway) -> None:
    body = b'{"model":"none","x":"' + b"a" * 200_000 + b'"}'
    request = chunked("/api/v1/route", body, (), AUTHORIZED)
    connection = await RawConnection.open(gateway.url)
    await connection.send(request + b"GET /live HTTP/1.1\r\nHost: 127")
    await connection.send(b".0.0.1\r\n\r\n")
    async with asyncio.timeout(PATIENCE_S):
        assert [(await connection.answer())[0] for _ in range(2)] == [404, 200]
    await connection.close()


@pytest.mark.parametrize("way", WAYS)
async def test_trickling_trailers_count_as_a_slow_body(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GuardedHttpProtocol, "head_timeout_s", 1.5)
    async with ScriptedEngine() as engine, served([engine.url], tmp_path, edge=EdgeSettings(stall_s=1.5)) as gateway:
        connection = await RawConnection.open(gateway.url)
        await connection.send(chunked(way, WAYS[way], (b"X-A: ",), AUTHORIZED)[:-4])

        async def dribble() -> None:
            while True:
                await connection.send(b"a")
                await asyncio.sleep(0.1)

        dribbling = asyncio.create_task(dribble())
        async with asyncio.timeout(PATIENCE_S):
            assert (await connection.answer())[0] == 408
        dribbling.cancel()
        await asyncio.gather(dribbling, return_exceptions=True)
        await connection.close()
