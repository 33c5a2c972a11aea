"""Limits on strangers at the peer port, without effect on gateways of the fleet."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import Any

import aiohttp
import pytest
import uvloop
from aiohttp import web

from gateway.peers.links import peer_port
from gateway.peers.links.peer_link import PATH, PeerLinks
from gateway.peers.links.peer_port import MAX_UNPROVEN, PEER, PeerPort
from gateway.peers.links.peer_proof import IDENTITY_HEADER, PROOF_HEADER, SIGNED_HEADER, PeerIdentity
from gateway.server.http.connection_limit import ConnectionLimit
from gateway.server.http.edge import Edge
from gateway.server.http.http_protocol import HEAD_TIMEOUT_S, MAX_HEAD_BYTES
from kvstore.keys.keyring import Keyring
from kvstore.transfer.tls import FileTls, TlsFiles
from tests.certificates import certificates
from tests.gateway.raw_http import RawConnection, post, served_app
from tests.gateway.server.http.test_edge import Echo
from tests.kvstore.transfer.test_strangers import is_closed
from tests.patience import PATIENCE_S, until

KEYRING = Keyring.of(b"the secret of a fleet of gateways")
STRANGERS = 1500
HALF_HEAD, HALF_HELLO = b"GET /peer HTTP/1.1\r\nHost: x\r\nX-A: ", b"\x16\x03\x01\x40\x00"
RUNS = pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return certificates(tmp_path_factory.mktemp("authority"))


@pytest.fixture(params=["plain", "tls"])
def tls(request: pytest.FixtureRequest, files: TlsFiles) -> TlsFiles | None:
    return files if request.param == "tls" else None


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4 * STRANGERS)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def rejection(_request: web.Request) -> web.Response:
    answer = web.Response(status=401)
    answer.force_close()
    return answer


class Door:
    """A peer port in front of one handler; `?secret` in a header proves a peer, and the test sets the clock."""

    def __init__(self, tls: TlsFiles | None = None) -> None:
        self.rejected: Counter[str] = Counter()
        self.now = 1000.0
        self.served: list[Any] = []
        self.port = PeerPort(
            lambda request: request.headers.get("secret"),
            rejection,
            tls.server() if tls else None,
            lambda cause: self.rejected.update([cause]),
            lambda: self.now,
        )
        self.url = ""
        self.fail: Exception | None = None

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Record the caller."""
        self.served.append(request[PEER])
        if self.fail is not None:
            raise self.fail
        return web.Response(text="served")


@asynccontextmanager
async def door(tls: TlsFiles | None = None) -> AsyncIterator[Door]:
    opened = Door(tls)
    app = web.Application(middlewares=[opened.port.prove])
    app.router.add_route("*", "/peer", opened.handle)
    opened.url = f"http://127.0.0.1:{await opened.port.start(app, '127.0.0.1', 0)}"
    try:
        yield opened
    finally:
        await opened.port.stop()
        await until(lambda: not opened.port._open)
        assert not opened.port._limit._open
        assert len(opened.port._unproven) == 0


async def ended(strangers: list[RawConnection]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        for stranger in strangers:
            while not await stranger.closed():
                pass
            await stranger.close()


@asynccontextmanager
async def linked(tls: TlsFiles | None, rejected: Counter[str]) -> AsyncIterator[tuple[PeerLinks, PeerLinks, int]]:
    """Yield a gateway, its responding peer, and the peer's port."""

    def links(tag: str) -> PeerLinks:
        me, live = PeerIdentity(tag, "eu"), FileTls(tls) if tls else None
        return PeerLinks(me, KEYRING, live, rejected=lambda cause: rejected.update([cause]))

    asking, answering = links("aaaaaaaa"), links("bbbbbbbb")

    async def echo(_peer: PeerIdentity, body: bytes) -> bytes:
        return body

    answering.on_call("echo", echo)
    try:
        port = await answering.start("127.0.0.1", 0)
        await asking.start("127.0.0.1", 0)
        yield asking, answering, port
    finally:
        await asking.stop()
        await answering.stop()


@RUNS
def test_1500_slow_strangers_use_few_descriptors_while_peers_and_clients_are_served(
    run: Run, tls: TlsFiles | None, many_descriptors: None
) -> None:
    strangers: list[socket.socket] = []

    async def scenario(stack: ExitStack) -> None:
        rejected: Counter[str] = Counter()
        async with linked(tls, rejected) as (asking, answering, port), served_app(Edge(Echo())) as public:
            asking.set_peers({"early": f"127.0.0.1:{port}"})
            await until(lambda: asking.connected("early"))
            for number in range(STRANGERS):
                strangers.append(stack.enter_context(socket.create_connection(("127.0.0.1", port))))
                strangers[-1].send(HALF_HEAD if tls is None else HALF_HELLO)
                await asyncio.sleep(0)
                if number % 100 == 0:
                    assert await asking.ask("early", "echo", b"%d" % number, PATIENCE_S) == b"%d" % number
            await until(lambda: rejected["displaced"] >= STRANGERS - MAX_UNPROVEN)
            for round_ in range(5):
                for stranger in strangers:
                    with suppress(OSError):
                        stranger.send(b"a" if tls is None else b"\x01")
                await until(lambda: len(answering._port._open) <= MAX_UNPROVEN + 3)
                asking.set_peers({"early": f"127.0.0.1:{port}", f"late {round_}": f"127.0.0.1:{port}"})
                await until(lambda name=f"late {round_}": asking.connected(name))
                assert await asking.ask(f"late {round_}", "echo", b"new", PATIENCE_S) == b"new"
                assert await asking.ask("early", "echo", b"old", PATIENCE_S) == b"old"
                client = await RawConnection.open(public)
                await client.send(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                assert (await client.answer())[0] == 200
                await client.close()
            answering._port._clock = lambda: 1e9
            answering._port.close_late()
            await until(lambda: all(map(is_closed, strangers)))
            await until(lambda: len(answering._port._open) == 2)

    with ExitStack() as stack:
        run(scenario(stack))


@RUNS
def test_a_silent_connection_to_the_tls_port_ends_at_the_handshake_timeout(
    run: Run, files: TlsFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_port, "HANDSHAKE_S", 0.05)

    async def scenario() -> None:
        async with door(files) as opened:
            strangers = [await RawConnection.open(opened.url) for _ in range(20)]
            await ended(strangers)
            await until(lambda: opened.rejected == Counter(unproved=20))

    run(scenario())


async def test_the_head_timeout_does_not_restart_with_each_byte() -> None:
    async with door() as opened:
        stranger = await RawConnection.open(opened.url)
        await until(lambda: len(opened.port._unproven) == 1)
        for position in range(9):
            await stranger.send(HALF_HEAD[position : position + 1])
            opened.now += HEAD_TIMEOUT_S / 10
            opened.port.close_late()
            assert len(opened.port._unproven) == 1
        opened.now += HEAD_TIMEOUT_S / 10
        opened.port.close_late()
        await ended([stranger])
        assert opened.rejected == Counter(late=1)


async def test_a_connection_without_proof_is_answered_and_closed_immediately() -> None:
    async with door() as opened:
        for request in (b"GET /peer HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n"):
            stranger = await RawConnection.open(opened.url)
            await stranger.send(request)
            assert (await stranger.answer())[0] == 401
            await ended([stranger])
        await until(lambda: opened.rejected == Counter(unproved=2))
        assert not opened.served


async def test_a_body_without_proof_is_not_awaited() -> None:
    async with door() as opened:
        stranger = await RawConnection.open(opened.url)
        await stranger.send(post("/peer", b"x" * 100)[:-50])
        assert (await stranger.answer())[0] == 401
        opened.now += HEAD_TIMEOUT_S
        opened.port.close_late()
        await ended([stranger])
        assert not opened.served


async def test_each_request_needs_its_own_proof() -> None:
    async with door() as opened:
        peer = await RawConnection.open(opened.url)
        await peer.send(post("/peer", b"", "Secret: eu"))
        assert (await peer.answer())[0] == 200
        opened.now += 3600.0
        opened.port.close_late()
        await peer.send(post("/peer", b"", "Secret: us"))
        assert (await peer.answer())[0] == 200
        await peer.send(post("/peer", b""))
        assert (await peer.answer())[0] == 401
        await ended([peer])
        assert opened.served == ["eu", "us"]
        assert not opened.rejected


async def test_a_proven_connection_gets_no_more_time_for_its_next_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_port, "HEAD_TIMEOUT_S", 0.2)
    async with door() as opened:
        peer = await RawConnection.open(opened.url)
        await peer.send(post("/peer", b"", "Secret: eu"))
        assert (await peer.answer())[0] == 200
        with suppress(ConnectionError):
            await peer.send(HALF_HEAD)
            for _ in range(1000):  # fewer bytes than a header may have
                if peer.ended:
                    break
                await peer.send(b"a")
                await asyncio.sleep(0.02)
        assert peer.ended
        await ended([peer])


async def test_an_endless_head_is_cut_off_at_its_limit() -> None:
    async with door() as opened:
        stranger = await RawConnection.open(opened.url)
        sent = 0
        with suppress(ConnectionError):
            while not stranger.ended:
                await stranger.send(b"GET /peer HTTP/1.1\r\n" if not sent else b"X-%d: %s\r\n" % (sent, b"y" * 1000))
                sent += 1000
                await asyncio.sleep(0)
        await ended([stranger])
        assert opened.rejected == Counter(large_head=1)
        assert sent > MAX_HEAD_BYTES


async def test_a_long_body_after_a_short_head_is_not_a_large_head() -> None:
    async with door() as opened:
        peer = await RawConnection.open(opened.url)
        request = post("/peer", b"x" * 2 * MAX_HEAD_BYTES, "Secret: eu")
        for begin, end in (
            (0, 30),
            (30, 31),
            (31, request.index(b"\r\n\r\n") + 2),
            (request.index(b"\r\n\r\n") + 2, None),
        ):
            await peer.send(request[begin:end])
            await asyncio.sleep(0.01)
        assert (await peer.answer())[0] == 200
        await peer.close()


async def test_peers_can_open_connections_beyond_the_limit_of_strangers() -> None:
    async with door() as opened:
        opened.port._limit = ConnectionLimit(2)
        peers = []
        for _ in range(2):
            peers.append(await RawConnection.open(opened.url))
            await peers[-1].send(post("/peer", b"", "Secret: eu"))
            assert (await peers[-1].answer())[0] == 200
        one_more = await RawConnection.open(opened.url)
        await ended([one_more])
        assert opened.rejected == Counter(crowded=1)
        await peers[0].send(post("/peer", b"", "Secret: eu"))
        assert (await peers[0].answer())[0] == 200
        for peer in peers:
            await peer.close()


ODD = [b"\xff\xfe", b"\xc3\xa9", b"\xed\xa0\x80", b"nan.00.\xff", b"." * 5000, b"1e999.00.00", b"0.0.\xf0\x9f\x98\x80"]


@pytest.mark.parametrize("odd", ODD)
async def test_headers_with_arbitrary_bytes_are_no_proof_and_cause_no_error(
    odd: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    rejected: Counter[str] = Counter()
    async with linked(None, rejected) as (asking, _, port):
        asking.set_peers({"eu": f"127.0.0.1:{port}"})
        await until(lambda: asking.connected("eu"))
        said = asking._links["eu"].session.headers(b"said")
        connects = asking._proofs.answer("0" * 112)[0]
        right = {name.encode(): value.encode() for name, value in {**said, **connects}.items()}
        for name in (IDENTITY_HEADER, PROOF_HEADER, SIGNED_HEADER):
            fields = b"".join(b"%s: %s\r\n" % field for field in {**right, name.encode(): odd}.items())
            stranger = await RawConnection.open(f"http://127.0.0.1:{port}")
            await stranger.send(b"GET %s HTTP/1.1\r\nHost: x\r\n%s\r\n" % (PATH.encode(), fields))
            assert (await stranger.answer())[0] == 401
            await ended([stranger])
    assert not caplog.records


MALFORMED = [b"\x16\x03\x01\x02\x00", b"GET\r\n\r\n", b"GET /peer HTTP/1.1\r\nHost\r\n\r\n", b"GET // HTTP/9.9\r\n\r\n"]


@pytest.mark.parametrize("request_", MALFORMED)
async def test_malformed_requests_are_not_logged(request_: bytes, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with door() as opened:
        for again in (b"", post("/peer", b"", "Secret: eu")):
            stranger = await RawConnection.open(opened.url)
            await stranger.send(again + request_)
            await ended([stranger])
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_a_failing_handler_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with door() as opened:
        opened.fail = LookupError("of ours")
        peer = await RawConnection.open(opened.url)
        await peer.send(post("/peer", b"", "Secret: eu"))
        assert (await peer.answer())[0] == 500
        await ended([peer])
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [LookupError]


async def test_a_port_out_of_descriptors_accepts_again_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(peer_port, "_PAUSE_S", 0.01)
    failures = [OSError(24, "Too many open files")] * 3

    async with door() as opened:
        accept = socket.socket.accept

        def failing(listener: socket.socket) -> Any:
            if failures:
                raise failures.pop()
            return accept(listener)

        monkeypatch.setattr(socket.socket, "accept", failing)
        for _ in range(2):
            peer = await RawConnection.open(opened.url)
            await peer.send(post("/peer", b"", "Secret: eu"))
            assert (await peer.answer())[0] == 200
            await peer.close()
        assert not failures
    assert not caplog.records


@pytest.mark.parametrize("host", ["localhost", "::1"])
async def test_the_port_listens_on_names_and_ipv6_addresses(host: str) -> None:
    opened = Door()
    app = web.Application(middlewares=[opened.port.prove])
    app.router.add_get("/peer", opened.handle)
    port = await opened.port.start(app, host, 0)
    try:
        where = f"[{host}]" if ":" in host else host
        url, proof = f"http://{where}:{port}/peer", {"secret": "eu"}
        async with aiohttp.ClientSession() as session, session.get(url, headers=proof) as answer:
            assert await answer.text() == "served"
    finally:
        await opened.port.stop()


async def test_connection_that_arrives_at_the_stop_is_closed() -> None:
    opened, faults = Door(), []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, fault: faults.append(fault))
    port = await opened.port.start(web.Application(), "127.0.0.1", 0)
    await asyncio.sleep(0.05)
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as peer:
        # The loop has the connection's event when the stop begins.
        await asyncio.sleep(0)
        await opened.port.stop()
        with pytest.raises(ConnectionResetError):
            peer.recv(1)
    assert not faults
