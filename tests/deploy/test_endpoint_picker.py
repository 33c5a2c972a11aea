"""The endpoint picker, called over gRPC as Envoy does."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from bench.live.loopback_ports import free_port
from tests.deploy.real_proxy import require_grpc

require_grpc()

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from deploy.envoy import picker as picker_module
from deploy.envoy.exchange import MAX_BODY
from deploy.envoy.picker import EXT_PROC, served
from deploy.envoy.replies import CHUNK
from tests.deploy.behind import CHAT, counted, counts
from tests.deploy.ext_proc_stream import (
    addresses,
    answer,
    ask,
    body,
    checked,
    endpoint_of,
    ext_proc_grpc,
    headers,
    picker,
    settings,
    status,
)
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import ServedGateway
from tests.gateway.served_gateway import served as served_gateway
from tests.kvstore.transfer.test_strangers import is_closed
from tests.patience import PATIENCE_S, until


@pytest.fixture
async def gateway(engines: list[ScriptedEngine], tmp_path: Path) -> AsyncIterator[ServedGateway]:
    async with served_gateway([engine.url for engine in engines], tmp_path) as gateway:
        yield gateway


async def test_an_endpoint_is_picked_and_the_response_is_reported(
    engines: list[ScriptedEngine], gateway: ServedGateway
) -> None:
    async with picker(settings(gateway.url)) as opened:
        stream, first = await ask(opened)
        assert endpoint_of(first)[0] in addresses(engines)
        piece = (await stream.read()).request_body.response.body_mutation.streamed_response
        assert (json.loads(piece.body), piece.end_of_stream) == (CHAT, True)
        await stream.write(status(200))
        assert (await stream.read()).WhichOneof("response") == "response_headers"
        content = b'data: {"choices": [{"delta": {"content": "x"}}]}\n\n'
        await stream.write(answer(content, ends=False))
        echoed = (await stream.read()).response_body.response.body_mutation.streamed_response
        assert (echoed.body, echoed.end_of_stream) == (content, False)
        await counted(gateway, first_tokens=1)
        await stream.write(answer(b'"usage": {"cached_tokens": 7}', ends=True))
        assert (await stream.read()).response_body.response.body_mutation.streamed_response.end_of_stream
        await counted(gateway, completed=1, first_tokens=1, cached_tokens=7)


async def test_a_long_body_is_returned_whole_in_pieces(gateway: ServedGateway) -> None:
    request = {**CHAT, "pad": "x" * (2 * CHUNK)}
    async with picker(settings(gateway.url)) as opened:
        stream, first = await ask(opened, request)
        assert endpoint_of(first)
        pieces = []
        while not pieces or not pieces[-1].end_of_stream:
            pieces.append((await stream.read()).request_body.response.body_mutation.streamed_response)
        assert json.loads(b"".join(piece.body for piece in pieces)) == request
        assert len(pieces) == 3


async def test_endpoints_are_picked_only_inside_the_given_subset(
    engines: list[ScriptedEngine], gateway: ServedGateway
) -> None:
    one, two = addresses(engines)
    async with picker(settings(gateway.url, *(engine.url for engine in engines))) as opened:
        for allowed in ([one], [two]):
            for _ in range(3):
                assert endpoint_of((await ask(opened, subset=allowed))[1]) == allowed
        for none in ([], ["192.0.2.1:8000"]):
            rejected = (await ask(opened, subset=none))[1].immediate_response
            assert rejected.status.code == 503


async def test_rejections_are_returned_immediately(gateway: ServedGateway) -> None:
    async with picker(settings(gateway.url)) as opened:
        gone = (await ask(opened, {**CHAT, "model": "nobody"}))[1].immediate_response
        assert (gone.status.code, json.loads(gone.body)["error"]["code"]) == (404, "model_not_found")
        assert (await ask(opened, b"x" * 40))[1].immediate_response.status.code == 400
        stream = opened()
        await stream.write(headers())
        for _ in range(5):
            await stream.write(body(b"x" * (MAX_BODY // 4 - 1), ends=False))
        assert (await stream.read()).immediate_response.status.code == 413


async def test_rejected_load_is_429_with_headways_retry_after() -> None:
    async def shed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 429 X\r\nretry-after: 7\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")
        writer.close()

    server = await asyncio.start_server(shed, "127.0.0.1", 0)
    async with server, picker(settings(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")) as opened:
        rejected = (await ask(opened))[1].immediate_response
        assert rejected.status.code == 429
        named = {set_header.header.key: set_header.header.raw_value for set_header in rejected.headers.set_headers}
        assert named["retry-after"] == b"7"


async def test_a_replaced_endpoint_and_a_failed_one_are_reported(gateway: ServedGateway) -> None:
    async with picker(settings(gateway.url)) as opened:
        for message in (status(200, "192.0.2.1:8000"), status(500)):
            stream, _ = await ask(opened)
            await stream.write(message)
            await stream.read()
            await stream.read()
            await stream.done_writing()
            assert await stream.read() is grpc.aio.EOF
        await counted(gateway, failed=2)


async def test_a_stream_that_ends_early_cancels_the_request(gateway: ServedGateway) -> None:
    async with picker(settings(gateway.url)) as opened:
        stream, _ = await ask(opened)
        stream.cancel()
        await counted(gateway, cancelled=1)


async def test_a_stopping_picker_reports_first(gateway: ServedGateway) -> None:
    async with picker(settings(gateway.url)) as opened:
        for _ in range(5):
            stream, _ = await ask(opened)
            stream.cancel()
    # No waiting here: all reports arrived before the picker had ended.
    assert (await counts(gateway)).get("cancelled") == 5


async def test_a_salt_is_added_to_the_body_and_a_clients_routing_fields_are_not_kept(
    engines: list[ScriptedEngine], tmp_path: Path
) -> None:
    async with (
        served_gateway([engine.url for engine in engines], tmp_path, isolated=True) as gateway,
        picker(settings(gateway.url)) as opened,
    ):
        stream, _ = await ask(opened, {**CHAT, "kv_transfer_params": {}, "cache_salt": "mine"})
        sent = json.loads((await stream.read()).request_body.response.body_mutation.streamed_response.body)
        assert "kv_transfer_params" not in sent
        assert sent["cache_salt"] not in ("", "mine")
        stream.cancel()


async def test_the_picker_fails_open_and_its_health_shows_whether_it_can(engines: list[ScriptedEngine]) -> None:
    unused_url = f"http://127.0.0.1:{free_port()}"
    for given, healthy in ((engines, True), ([], False)):
        async with (
            served(settings(unused_url, *(item.url for item in given))) as (_, port),
            grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
        ):
            checks = health_pb2_grpc.HealthStub(channel)
            wanted = health_pb2.HealthCheckResponse.SERVING if healthy else health_pb2.HealthCheckResponse.NOT_SERVING
            for service in ("readiness", EXT_PROC, ""):
                async with asyncio.timeout(PATIENCE_S):
                    while (await checked(checks, service)) != wanted:
                        await asyncio.sleep(0.02)
            assert await checked(checks, "liveness") == health_pb2.HealthCheckResponse.SERVING
            stub = ext_proc_grpc.ExternalProcessorStub(channel)
            stream, first = await ask(lambda stub=stub: stub.Process(timeout=PATIENCE_S))
            if healthy:
                assert set(endpoint_of(first)) == set(addresses(engines))
            else:
                assert first.immediate_response.status.code == 503
            stream.cancel()


async def test_connections_of_strangers_block_no_request_of_envoy(
    gateway: ServedGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(picker_module, "MAX_CONNECTIONS", 8)
    monkeypatch.setattr(picker_module, "HANDSHAKE_S", 0.5)
    with ExitStack() as stack:
        async with served(settings(gateway.url)) as (_, port):
            strangers = [
                stack.enter_context(await asyncio.to_thread(socket.create_connection, ("127.0.0.1", port)))
                for _ in range(40)
            ]
            for stranger in strangers[::2]:
                with suppress(OSError):
                    stranger.send(b"PRI * HTTP/2.0\r\n")
            await until(lambda: sum(not is_closed(stranger) for stranger in strangers) <= 8)
            await until(lambda: all(map(is_closed, strangers)))
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                health = health_pb2_grpc.HealthStub(channel)
                answer = await health.Check(health_pb2.HealthCheckRequest(service="liveness"), timeout=PATIENCE_S)
                assert answer.status == health_pb2.HealthCheckResponse.SERVING
