"""Links between gateways: calls, notices, proofs, and what a caller learns of a peer that has ended or hangs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from gateway.peers.peer_link import (
    PATH,
    PeerFailedError,
    PeerGoneError,
    PeerIdentity,
    PeerLinks,
    PeerProof,
    PeerSilentError,
)
from tests.gateway.logged_errors import logged_errors
from tests.patience import PATIENCE_S, until

SECRET = b"the secret of a fleet of gateways"


@asynccontextmanager
async def linked(secret: bytes = SECRET) -> AsyncIterator[tuple[PeerLinks, PeerLinks]]:
    asking = PeerLinks(PeerIdentity("aaaaaaaa", "us"), SECRET)
    answering = PeerLinks(PeerIdentity("bbbbbbbb", "eu"), secret)
    try:
        port = await answering.start("127.0.0.1", 0)
        await asking.start("127.0.0.1", 0)
        asking.set_peers({"eu": f"127.0.0.1:{port}"})
        yield asking, answering
    finally:
        await asking.stop()
        await answering.stop()


async def connected(links: PeerLinks) -> None:
    await until(lambda: links.connected("eu"))


async def test_a_call_is_answered_and_names_its_caller() -> None:
    async with linked() as (asking, answering):

        async def echo(peer: PeerIdentity, body: bytes) -> bytes:
            return f"{peer.region} ".encode() + body

        answering.on_call("echo", echo)
        await connected(asking)
        assert await asking.ask("eu", "echo", b"hello", 30) == b"us hello"


async def test_a_notice_is_heard() -> None:
    async with linked() as (asking, answering):
        heard: asyncio.Future[tuple[str, bytes]] = asyncio.get_running_loop().create_future()
        answering.on_notice("load", lambda peer, body: heard.set_result((peer.tag, body)))
        await connected(asking)
        assert asking.tell("eu", "load", b"7")
        async with asyncio.timeout(PATIENCE_S):
            assert await heard == ("aaaaaaaa", b"7")


async def test_a_handler_that_fails_is_no_silence() -> None:
    async with linked() as (asking, answering):

        async def fail(_peer: PeerIdentity, _body: bytes) -> bytes:
            raise LookupError

        answering.on_call("fail", fail)
        await connected(asking)
        with pytest.raises(PeerFailedError, match="LookupError"):
            await asking.ask("eu", "fail", b"", 30)
        with pytest.raises(PeerFailedError, match="unknown"):
            await asking.ask("eu", "of another version", b"", 30)


async def test_who_hangs_is_silent_and_who_has_ended_is_gone() -> None:
    async with linked() as (asking, answering):

        async def hang(_peer: PeerIdentity, _body: bytes) -> bytes:
            await asyncio.sleep(60)
            return b""

        answering.on_call("hang", hang)
        await connected(asking)
        with pytest.raises(PeerSilentError):
            await asking.ask("eu", "hang", b"", 0.05)
        waits = asyncio.create_task(asking.ask("eu", "hang", b"", 60))
        await asyncio.sleep(0.05)
        await answering.stop()
        with pytest.raises(PeerSilentError):
            await waits
        await until(lambda: asking.refused("eu"))
        with pytest.raises(PeerGoneError):
            await asking.ask("eu", "hang", b"", 30)


async def test_another_secret_opens_nothing() -> None:
    async with linked(b"the secret of another fleet here") as (asking, _):
        await asyncio.sleep(0.3)
        assert not asking.connected("eu")
        assert not asking.refused("eu")


async def test_a_proof_opens_once_and_for_a_time() -> None:
    now = [1000.0]
    proof, me = PeerProof(SECRET, lambda: now[0]), PeerIdentity("aaaaaaaa", "us")
    headers = proof.headers(me)
    assert proof.identity(headers) == me
    assert proof.identity(headers) is None
    late = proof.headers(me)
    now[0] += 31
    assert proof.identity(late) is None
    assert proof.identity({}) is None


async def test_a_connection_without_proof_is_rejected() -> None:
    links = PeerLinks(PeerIdentity("aaaaaaaa", "us"), SECRET)
    port = await links.start("127.0.0.1", 0)
    try:
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{PATH}") as answer:
            assert answer.status == 401
    finally:
        await links.stop()


GARBAGE = (
    b"garbage\r\n\r\n",
    b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
    b"GET / HTTP/9.9\r\nHost: a\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: many\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 20_000 + b"\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
)


async def test_garbage_on_the_peers_port_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    links = PeerLinks(PeerIdentity("aaaaaaaa", "us"), SECRET)
    port = await links.start("127.0.0.1", 0)
    try:
        for sent in GARBAGE:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            writer.write_eof()
            async with asyncio.timeout(PATIENCE_S):
                await reader.read()
            writer.close()
            await writer.wait_closed()
    finally:
        await links.stop()
    assert logged_errors(caplog) == []
