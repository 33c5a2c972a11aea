"""Bodies with a Content-Encoding are decoded piece by piece, up to their limit."""

from __future__ import annotations

import asyncio
import gzip
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from backports import zstd

from gateway.server.http.edge import EdgeSettings
from gateway.server.http.encoded_body import MAX_MEMBERS, PIECE_BYTES, DecodedReceive
from gateway.server.http.guarded_receive import BodyRoom, BodyWatch, GuardedReceive, RejectedAtEdgeError
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import MODEL, served

TEXT = b'{"a": "' + b"some words " * 20_000 + b'"}'
LIMIT = 1 << 20
COMPRESS = {"gzip": gzip.compress, "x-gzip": gzip.compress, "zstd": zstd.compress}
CHAT: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "x" * 4000}]}


def guarded(chunks: list[bytes], room: BodyRoom | None = None) -> GuardedReceive:
    left = list(chunks)

    async def receive() -> Any:
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    return GuardedReceive(receive, LIMIT, BodyWatch(10.0, 1.0), room)


async def decoded(chunks: list[bytes], encoding: str, limit: int = LIMIT) -> list[bytes]:
    """Return the pieces of the decoded body."""
    receive, pieces = DecodedReceive(guarded(chunks), encoding.encode(), limit), []
    while True:
        message = await receive()
        pieces.append(message["body"])
        if not message["more_body"]:
            return pieces


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


@pytest.mark.parametrize("size", [1, 100, 1 << 20])
@pytest.mark.parametrize("encoding", COMPRESS)
async def test_a_body_is_decoded_however_fragmented(encoding: str, size: int) -> None:
    assert b"".join(await decoded(cut(COMPRESS[encoding](TEXT), size), f" {encoding.upper()} ")) == TEXT


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
async def test_concatenated_compressed_streams_are_one_body(encoding: str) -> None:
    parts = COMPRESS[encoding](b"one, ") + COMPRESS[encoding](b"") + COMPRESS[encoding](b"two")
    assert b"".join(await decoded([parts], encoding)) == b"one, two"


async def test_an_empty_body_decodes_to_an_empty_body() -> None:
    assert await decoded([b""], "gzip") == [b""]


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
async def test_a_decompression_bomb_stops_at_the_limit_and_uses_no_more_memory(encoding: str) -> None:
    bomb = COMPRESS[encoding](bytes(256 << 20))
    assert len(bomb) < LIMIT
    tracemalloc.start()
    try:
        with pytest.raises(RejectedAtEdgeError) as rejected:
            await decoded([bomb], encoding)
        assert tracemalloc.get_traced_memory()[1] < 4 * LIMIT
    finally:
        tracemalloc.stop()
    assert (rejected.value.status, rejected.value.code) == (413, "body_too_large")


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
async def test_decoded_pieces_are_short_so_that_other_tasks_run(encoding: str) -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    pieces = await decoded([COMPRESS[encoding](bytes(LIMIT))], encoding)
    task.cancel()
    assert max(map(len, pieces)) <= PIECE_BYTES
    assert turns >= LIMIT // PIECE_BYTES


@pytest.mark.parametrize(
    ("encoding", "data"),
    [
        ("gzip", b"no gzip at all"),
        ("gzip", gzip.compress(TEXT)[:-5]),
        ("gzip", gzip.compress(TEXT) + b"\0"),
        ("zstd", zstd.compress(TEXT)[:-1]),
        ("zstd", gzip.compress(TEXT)),
        ("zstd", zstd.compress(TEXT) + b"x"),
        ("gzip", gzip.compress(b"") * (MAX_MEMBERS + 1)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_damaged_body_is_rejected(encoding: str, data: bytes) -> None:
    with pytest.raises(RejectedAtEdgeError) as rejected:
        await decoded([data], encoding)
    assert (rejected.value.status, rejected.value.code) == (400, "damaged_encoding")


async def test_an_oversized_compression_window_is_not_allocated() -> None:
    noise = bytes(number * number >> 3 & 255 for number in range(1 << 18)) * 80
    stream = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 24})
    data = stream.compress(noise) + stream.flush()
    with pytest.raises(RejectedAtEdgeError, match="RFC 9659"):
        await decoded([data], "zstd", limit=64 << 20)


async def test_the_decoded_body_counts_toward_the_memory_limit() -> None:
    room = BodyRoom(LIMIT)
    read = guarded([gzip.compress(bytes(2 * LIMIT))], room)
    receive = DecodedReceive(read, b"gzip", 8 * LIMIT)
    with pytest.raises(RejectedAtEdgeError) as rejected:
        while (await receive())["more_body"]:
            pass
    assert (rejected.value.status, rejected.value.code) == (503, "bodies_full")
    read.release()
    room.take(LIMIT)


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
async def test_an_engine_gets_the_decoded_body(tmp_path: Path, encoding: str) -> None:
    body = json.dumps(CHAT).encode()
    async with ScriptedEngine() as engine, served([engine.url], tmp_path) as gateway:
        headers = {"content-encoding": encoding}
        status, _, _ = await gateway.post("/v1/chat/completions", COMPRESS[encoding](body), headers=headers)
        assert status == 200
        assert engine.raw_bodies == [body]
        assert "content-encoding" not in engine.headers[0]
        status, decision, _ = await gateway.post(
            "/api/v1/route", COMPRESS[encoding](json.dumps({**CHAT, "wait": False}).encode()), headers=headers
        )
        assert (status, decision["engine"]["id"]) == (200, "engine-0")


async def test_an_unknown_encoding_is_answered_with_the_supported_ones(tmp_path: Path) -> None:
    async with ScriptedEngine() as engine, served([engine.url], tmp_path, edge=EdgeSettings()) as gateway:
        status, error, headers = await gateway.post("/v1/chat/completions", b"x", headers={"content-encoding": "br"})
    assert (status, error["error"]["code"], headers["accept-encoding"]) == (415, "encoded_body", "gzip, zstd")
    assert "gzip or zstd" in error["error"]["message"]
