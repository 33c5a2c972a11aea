"""Links between gateways: calls, notices, proofs, and detection of peers that end or hang."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from gateway.peers.links.peer_link import _FORM, PATH, Call, PeerFailedError, PeerGoneError, PeerLinks, PeerSilentError
from gateway.peers.links.peer_proof import CHALLENGE_HEADER, PROOF_HEADER, PeerIdentity
from kvstore.keys.keyring import Keyring
from tests.gateway.logged_errors import logged_errors
from tests.patience import PATIENCE_S, until

KEYRING = Keyring.of(b"the secret of a fleet of gateways")


@asynccontextmanager
async def linked(keyring: Keyring = KEYRING) -> AsyncIterator[tuple[PeerLinks, PeerLinks]]:
    asking = PeerLinks(PeerIdentity("aaaaaaaa", "us"), KEYRING)
    answering = PeerLinks(PeerIdentity("bbbbbbbb", "eu"), keyring)
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


async def test_a_notice_is_received() -> None:
    async with linked() as (asking, answering):
        received: asyncio.Future[tuple[str, bytes]] = asyncio.get_running_loop().create_future()
        answering.on_notice("load", lambda peer, body: received.set_result((peer.tag, body)))
        await connected(asking)
        assert asking.notify("eu", "load", b"7")
        async with asyncio.timeout(PATIENCE_S):
            assert await received == ("aaaaaaaa", b"7")


async def test_a_failing_handler_is_not_silence() -> None:
    async with linked() as (asking, answering):

        async def fail(_peer: PeerIdentity, _body: bytes) -> bytes:
            raise LookupError

        answering.on_call("fail", fail)
        await connected(asking)
        with pytest.raises(PeerFailedError, match="LookupError"):
            await asking.ask("eu", "fail", b"", 30)
        with pytest.raises(PeerFailedError, match="unknown"):
            await asking.ask("eu", "of another version", b"", 30)


async def test_a_hanging_peer_is_silent_and_an_ended_peer_is_gone() -> None:
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


async def test_a_peer_with_another_secret_is_rejected() -> None:
    async with linked(Keyring.of(b"the secret of another fleet")) as (asking, _):
        await asyncio.sleep(0.3)
        assert not asking.connected("eu")
        assert not asking.refused("eu")


async def test_a_connection_without_proof_is_rejected() -> None:
    links = PeerLinks(PeerIdentity("aaaaaaaa", "us"), KEYRING)
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


async def test_garbage_on_the_peer_port_is_not_an_error(caplog: pytest.LogCaptureFixture) -> None:
    links = PeerLinks(PeerIdentity("aaaaaaaa", "us"), KEYRING)
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


class Thief:
    """A process without the secret that has taken a dead gateway's port and knows a live gateway's address."""

    def __init__(self, living: int) -> None:
        self.proofs: list[dict[str, str]] = []
        self.forwarded: list[dict[str, str]] = []
        self.got = 0
        """Messages of any connected client."""
        self.tampers = False
        self._url = f"http://127.0.0.1:{living}{PATH}"
        app = web.Application()
        app.router.add_get(PATH, self._connected)
        app.router.add_post("/forward", self._posted)
        self._runner = web.AppRunner(app)

    async def take(self, port: int) -> None:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", port, reuse_address=True).start()

    async def leave(self) -> None:
        await self._runner.cleanup()

    async def _posted(self, request: web.Request) -> web.Response:
        self.forwarded.append(dict(request.headers))
        return web.Response()

    async def _connected(self, request: web.Request) -> web.StreamResponse:
        """Relay the connection to the live gateway and back, and add a message when tampering."""
        sent = {name: value for name, value in request.headers.items() if name.lower().startswith("x-headway")}
        async with aiohttp.ClientSession() as session:
            if not sent:
                async with session.get(self._url) as answer:
                    return web.Response(status=401, headers={CHALLENGE_HEADER: answer.headers[CHALLENGE_HEADER]})
            self.proofs.append(sent)
            near = web.WebSocketResponse()
            await near.prepare(request)
            async with session.ws_connect(self._url, headers=sent) as far:
                await near.send_bytes((await far.receive()).data)
                if self.tampers:
                    await far.send_bytes(_FORM.encode(Call(1, "anything", b"of the thief")))
                    await far.receive()
                    return near
                both = asyncio.gather(self._passed(near, far), self._passed(far, near))
                await both
        return near

    async def _passed(self, source: Any, target: Any) -> None:
        async for message in source:
            self.got += 1
            await target.send_bytes(message.data)
        await target.close()


@asynccontextmanager
async def robbed(*, tampers: bool = False) -> AsyncIterator[tuple[PeerLinks, PeerLinks, Thief, list[bytes]]]:
    """Yield a gateway calling a dead one, a live one, the thief of the dead one's port, and the live one's messages."""
    asking, dead, living = (PeerLinks(PeerIdentity(8 * tag, "eu"), KEYRING) for tag in "bac")
    received: list[bytes] = []

    async def receive(_peer: PeerIdentity, body: bytes) -> bytes:
        received.append(body)
        return b"done"

    living.on_call("anything", receive)
    port, thief = await dead.start("127.0.0.1", 0), Thief(await living.start("127.0.0.1", 0))
    thief.tampers = tampers
    await asking.start("127.0.0.1", 0)
    await dead.stop()
    try:
        await thief.take(port)
        asking.set_peers({"eu": f"127.0.0.1:{port}"})
        yield asking, living, thief, received
    finally:
        for item in (asking, living):
            await item.stop()
        await thief.leave()


async def test_a_thief_of_a_dead_gateways_port_can_relay_a_connection_but_not_add_to_it() -> None:
    async with robbed() as (asking, living, thief, received):
        await connected(asking)
        assert await asking.ask("eu", "anything", b"of the peer", 30) == b"done"
        assert thief.got == 2
        # Its loot opens nothing: neither at its origin nor at any other gateway.
        async with aiohttp.ClientSession() as session:
            for links in (living, asking):
                url = f"http://127.0.0.1:{links._port._listeners[0].getsockname()[1]}{PATH}"
                async with session.get(url, headers=thief.proofs[0]) as answer:
                    assert (answer.status, PROOF_HEADER in thief.proofs[0]) == (401, True)
        assert received == [b"of the peer"]
    async with robbed(tampers=True) as (asking, _, thief, received):
        await until(lambda: len(thief.proofs) >= 2)
        assert received == []


async def test_a_request_signed_for_one_gateway_is_rejected_by_another() -> None:
    async with robbed() as (asking, living, thief, _):
        await connected(asking)
        async with asking.post("eu", "/forward", b"body", {}, b"head") as answer:
            assert answer.status == 200
        (stolen,) = thief.forwarded
        # The living gateway holds the other end of the passed connection: it would be served once, as it was signed.
        assert living._proofs.proved(stolen) == asking.me
        assert living._proofs.proved(stolen) is None
        other = PeerLinks(PeerIdentity("d" * 8, "eu"), KEYRING)
        assert other._proofs.proved(stolen) is None


@pytest.mark.parametrize("welcome", [b"", b"0" * 64, None])
async def test_nothing_is_sent_to_a_process_that_does_not_prove_itself(welcome: bytes | None) -> None:
    received: list[bytes] = []
    tries = 0

    async def pretend(request: web.Request) -> web.StreamResponse:
        nonlocal tries
        if PROOF_HEADER not in request.headers:
            return web.Response(status=401, headers={CHALLENGE_HEADER: "0" * 112})
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        tries += 1
        if welcome is not None:
            await socket.send_bytes(welcome)
            received.extend([message.data async for message in socket])
        return socket

    app = web.Application()
    app.router.add_get(PATH, pretend)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    links = PeerLinks(PeerIdentity("aaaaaaaa", "us"), KEYRING)
    await links.start("127.0.0.1", 0)
    try:
        links.set_peers({"eu": f"127.0.0.1:{runner.addresses[0][1]}"})
        await until(lambda: tries >= 2)
        assert not links.connected("eu")
        assert not links.refused("eu"), "a process listens there"
        assert not links.notify("eu", "load", b"7")
        with pytest.raises(PeerGoneError):
            links.post("eu", "/forward", b"body", {}, b"head")
        assert received == []
    finally:
        await links.stop()
        await runner.cleanup()


@pytest.mark.parametrize("step", range(3))
async def test_gateways_one_rotation_step_apart_call_each_other(step: int) -> None:
    held = (b"before", b""), (b"before", b"after"), (b"after", b"before"), (b"after", b"")
    rejected: list[str] = []
    ends = [
        PeerLinks(PeerIdentity(8 * tag, "eu"), Keyring.of(*secrets), rejected=rejected.append)
        for tag, secrets in zip("ab", held[step : step + 2], strict=True)
    ]

    async def echo(_peer: PeerIdentity, body: bytes) -> bytes:
        return body

    try:
        ports = [await end.start("127.0.0.1", 0) for end in ends]
        for end, port in zip(ends, reversed(ports), strict=True):
            end.on_call("echo", echo)
            end.set_peers({"eu": f"127.0.0.1:{port}"})
        for end in ends:
            await connected(end)
            assert await end.ask("eu", "echo", b"hello", 30) == b"hello"
        assert rejected == []
    finally:
        for end in ends:
            await end.stop()
