"""Resources that clients without the secret, and slow clients with it, can use on a node's port."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import msgspec
import pytest

from kvstore.tiers.block_facts import checksum_of
from kvstore.transfer import transfer_server
from kvstore.transfer.connection import Connection, PeerError
from kvstore.transfer.frames import ContentsPage, Done, Get, Held, Hello, Lookup, Message, Put, encode
from kvstore.transfer.handshake import CONNECTIONS
from kvstore.transfer.tls import TlsFiles
from kvstore.transfer.transfer_client import TransferClient, TransferSettings
from kvstore.transfer.transfer_server import GREETING_S, MAX_UNPROVEN, MIN_BYTES_PER_S, TIMEOUT_S, TransferServer
from tests.certificates import certificates
from tests.kvstore.kv_blocks import KEYRING, a_client, block, facts, node
from tests.patience import wait_until

STRANGERS = 300
GREETING = encode(Hello(bytes(32), bytes(32), "stranger"))
TLS_GREETING = b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03" + bytes(64)
"""The beginning of a ClientHello of 16 KiB."""


class Clock:
    """A clock that a test advances."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return certificates(tmp_path_factory.mktemp("authority"))


@pytest.fixture(params=["plain", "tls"])
def tls(request: pytest.FixtureRequest, files: TlsFiles) -> TlsFiles | None:
    return files if request.param == "tls" else None


@contextmanager
def serving(clock: Clock, tls: TlsFiles | None = None, **slots: Any) -> Iterator[TransferServer]:
    with node(slots={"dram_slots": 32, **slots}) as manager:
        server = TransferServer(manager.server._service, KEYRING, ("n1", 1), ("127.0.0.1", 0), clock, tls)
        server.start()
        try:
            yield server
        finally:
            server.drain(0.0)


def address(server: TransferServer) -> str:
    return f"127.0.0.1:{server.port}"


def connect(server: TransferServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port))


@contextmanager
def proved(server: TransferServer, tls: TlsFiles | None = None) -> Iterator[tuple[Connection, socket.socket]]:
    """Connect with the secret; yield the connection and its socket, for bytes that are not frames."""
    sock = connect(server)
    if tls is not None:
        sock = tls.client().wrap_socket(sock, server_hostname="127.0.0.1")
    with sock:
        connection = Connection(sock)
        connection.greet_node(KEYRING.keys(CONNECTIONS))
        wait_until(lambda: len(server) == 1)
        yield connection, sock


def is_closed(sock: socket.socket) -> bool:
    """Return whether the server has closed the connection, after reading any bytes sent before."""
    sock.setblocking(False)
    try:
        while sock.recv(65536):
            pass
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def drip(strangers: list[socket.socket], what: bytes, position: int) -> None:
    for stranger in strangers:
        try:
            stranger.send(what[position : position + 1])
        except OSError:
            continue


@pytest.mark.parametrize("what", ["silent", "dripping"])
def test_clients_with_the_secret_are_served_while_strangers_hold_300_sockets(
    what: str, tls: TlsFiles | None, clock: Clock
) -> None:
    bytes_sent = b"" if what == "silent" else GREETING if tls is None else TLS_GREETING
    with serving(clock, tls) as server, ExitStack() as stack:
        strangers = [stack.enter_context(connect(server)) for _ in range(STRANGERS)]
        wait_until(lambda: server.rejected["displaced"] == STRANGERS - MAX_UNPROVEN)
        for position in range(20):
            drip(strangers, bytes_sent, position)
            with a_client(tls=tls) as client:
                assert client.call(address(server), Lookup([])) == Held([])
        assert len(server._unproven) >= MAX_UNPROVEN - 20
        wait_until(lambda: len(server) == 0)
        clock.now += GREETING_S
        server.close_late()
        assert len(server._unproven) == 0
        wait_until(lambda: all(is_closed(stranger) for stranger in strangers))
        wait_until(lambda: server._threads == 0)
        assert server.rejected["displaced"] + server.rejected["late"] == STRANGERS
        assert server.rejected["unproved"] == 0


def test_the_greeting_timeout_does_not_restart_with_each_byte(tls: TlsFiles | None, clock: Clock) -> None:
    began, bytes_sent = clock.now, GREETING if tls is None else TLS_GREETING
    with serving(clock, tls) as server, connect(server) as stranger:
        wait_until(lambda: len(server._unproven) == 1)
        for position in range(8):
            stranger.send(bytes_sent[position : position + 1])
            clock.now = began + position * GREETING_S / 8
            server.close_late()
            assert len(server._unproven) == 1
        clock.now = began + GREETING_S
        server.close_late()
        wait_until(lambda: is_closed(stranger))


def test_a_late_proof_is_rejected(clock: Clock) -> None:
    with serving(clock) as server, connect(server) as sock:
        wait_until(lambda: len(server._unproven) == 1)
        clock.now += GREETING_S
        server.close_late()
        connection = Connection(sock)
        with pytest.raises(PeerError):
            connection.greet_node(KEYRING.keys(CONNECTIONS))
            connection.receive()
        assert len(server) == 0


@pytest.mark.parametrize("part", ["head", "body", "payload", "discarded payload"])
def test_a_client_with_the_secret_that_trickles_a_frame_is_disconnected(
    part: str, tls: TlsFiles | None, clock: Clock
) -> None:
    length = (1 << 20) if part.endswith("payload") else 1000
    data = block("a", length=length)[1]
    sizes = {"slot_bytes": 4096 if part.startswith("discarded") else 1 << 20, "dram_slots": 4}
    frame = encode(Put([block("a", length=length)[0]]), length) + bytes(data)
    begun = {"head": 4, "body": 40}.get(part, len(frame) - 1000)
    allowed_s = TIMEOUT_S + (length / MIN_BYTES_PER_S if part.endswith("payload") else 0)
    with serving(clock, tls, **sizes) as server, proved(server, tls) as (_, sock):
        sock.sendall(frame[:begun])
        [connection] = server._connections
        if part.endswith("payload"):
            wait_until(lambda: connection.deadline == clock.now + allowed_s)
        for byte in range(begun, begun + 10):
            clock.now += allowed_s / 11
            server.close_late()
            sock.sendall(frame[byte : byte + 1])
        assert len(server) == 1
        clock.now += allowed_s / 11
        server.close_late()
        wait_until(lambda: len(server) == 0)
        assert server.rejected["slow"] == part.endswith("payload")
        wait_until(lambda: is_closed(sock))


def test_a_slow_frame_within_its_timeout_is_answered(tls: TlsFiles | None, clock: Clock) -> None:
    facts_of, data = block("a", length=1000)
    frame = encode(Put([facts_of]), 1000) + bytes(data)
    with serving(clock, tls) as server, proved(server, tls) as (connection, sock):
        for begin in range(0, len(frame), 100):
            clock.now += TIMEOUT_S / 30
            server.close_late()
            sock.sendall(frame[begin : begin + 100])
        assert connection.receive()[0] == Done(1, [])


def test_a_client_that_does_not_read_its_blocks_is_disconnected_and_frees_them(
    tls: TlsFiles | None, clock: Clock
) -> None:
    length = 8 << 20
    data = memoryview(bytes(length))
    stored = msgspec.structs.replace(facts("a", length=length), checksum=checksum_of(data))
    with serving(clock, tls, slot_bytes=length, dram_slots=1) as server, proved(server, tls) as (connection, _):
        connection.send(Put([stored]), [data])
        assert connection.receive()[0] == Done(1, [])
        clock.now += 1  # the deadline of the put must not pass for that of the answer
        for _ in range(8):
            connection.send(Get([stored.key], length))
        wait_until(lambda: list(server._connections.values()) == [True])
        wait_until(lambda: [item.deadline for item in server._connections] == [clock.now + TIMEOUT_S + 32])
        clock.now += TIMEOUT_S + 32
        server.close_late()
        wait_until(lambda: len(server) == 0)
        assert server.rejected["slow"] == 1
        with a_client(tls=tls) as client:
            answer = client.put(address(server), [block("b")])
            assert answer == Done(1, []), "the slot of an unread response is free"


class SlowService:
    """A node whose work takes as long as the test decides."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()

    def answer(self, message: Message) -> Done:
        """Wait until the test continues."""
        self.begun.set()
        self.go_on.wait()
        return Done(7)


def test_time_of_the_nodes_own_work_does_not_count_against_the_client(clock: Clock) -> None:
    service = SlowService()
    server = TransferServer(service, KEYRING, ("n1", 1), ("127.0.0.1", 0), clock)  # type: ignore[arg-type]  # one method is enough
    server.start()
    try:
        with proved(server) as (connection, _):
            connection.send(ContentsPage(0, 1))
            service.begun.wait()
            clock.now += 3600.0
            server.close_late()
            service.go_on.set()
            assert connection.receive()[0] == Done(7)
    finally:
        server.drain(0.0)


def test_an_idle_client_is_disconnected(tls: TlsFiles | None, clock: Clock) -> None:
    with serving(clock, tls) as server, proved(server, tls) as (_, sock):
        clock.now += TIMEOUT_S - 1
        server.close_late()
        assert len(server) == 1
        clock.now += 1
        server.close_late()
        wait_until(lambda: len(server) == 0)
        wait_until(lambda: is_closed(sock))
        assert server.rejected["slow"] == 0, "it was idle"


def test_clients_over_the_limit_are_counted_and_do_not_affect_others(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer_server, "MAX_CONNECTIONS", 2)
    with serving(clock) as server, ExitStack() as stack:
        clients = [stack.enter_context(a_client()) for _ in range(3)]
        for client in clients[:2]:
            client.call(address(server), Lookup([]))
        with pytest.raises(PeerError):
            clients[2].call(address(server), Lookup([]))
        assert server.rejected["crowded"] == 1
        for client in clients[:2]:
            assert client.call(address(server), Lookup([])) == Held([])


def test_a_drain_does_not_wait_for_strangers(clock: Clock) -> None:
    with serving(clock) as server, connect(server) as stranger:
        wait_until(lambda: len(server._unproven) == 1)
        assert server.drain(60.0)
        wait_until(lambda: is_closed(stranger))


class CutWhenWrapped:
    """A server context during whose handshake another thread cuts the connection."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self.cut: Callable[[], None] = lambda: None

    def wrap_socket(self, sock: socket.socket, **options: Any) -> ssl.SSLSocket:
        """Cut the connection while wrapping it."""
        wrapped = self._context.wrap_socket(sock, **options)
        self.cut()
        return wrapped


def test_a_connection_cut_during_the_tls_start_does_not_wait_for_its_client(files: TlsFiles) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        connection, context = Connection(ours), CutWhenWrapped(files.server())
        context.cut = connection.cut
        with pytest.raises(PeerError):
            connection.accept_tls(context)  # type: ignore[arg-type]
        connection.close()


def test_a_woken_connection_sends_nothing_outside_tls(files: TlsFiles) -> None:
    ours, theirs = socket.socketpair()
    connection = Connection(ours)
    accepting = threading.Thread(target=connection.accept_tls, args=(files.server(),))
    accepting.start()
    with files.client().wrap_socket(theirs, server_hostname="127.0.0.1") as sock:
        accepting.join()
        connection.wake()
        connection.send(Done(3))
        assert Connection(sock).receive()[0] == Done(3)
        connection.close()


@contextmanager
def impostor(act: Callable[[socket.socket], None]) -> Iterator[str]:
    """Listen at a node's address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run() -> None:
            with suppress(OSError), listener.accept()[0] as sock:
                act(sock)

        threading.Thread(target=run, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def gives_up(client: TransferClient, there: str) -> None:
    """Return when a call has failed; it runs in a separate thread because it might block forever."""
    failed: list[PeerError] = []

    def call() -> None:
        try:
            client.call(there, Lookup([]))
        except PeerError as error:
            failed.append(error)

    threading.Thread(target=call, daemon=True).start()
    wait_until(lambda: failed)


def silent(sock: socket.socket) -> None:
    sock.recv(1)


def dripping(sock: socket.socket) -> None:
    for position in range(1 << 20):
        sock.send(struct.pack(">4sHHIQ", b"SYKV", 1, 0, 500, 0)[position : position + 1] or b"a")
        threading.Event().wait(0.02)


@pytest.mark.parametrize("act", [silent, dripping])
def test_a_client_does_not_wait_for_an_impostor(act: Callable[[socket.socket], None]) -> None:
    with impostor(act) as there, a_client(settings=TransferSettings(timeout_s=0.2)) as client:
        gives_up(client, there)


def test_a_client_does_not_wait_for_a_silent_node_over_tls(files: TlsFiles) -> None:
    def greet(sock: socket.socket) -> None:
        with files.server().wrap_socket(sock, server_side=True) as over_tls:
            over_tls.recv(1)

    with impostor(greet) as there, a_client(tls=files, settings=TransferSettings(timeout_s=0.2)) as client:
        gives_up(client, there)


def test_a_client_does_not_wait_for_a_hanging_node(tls: TlsFiles | None) -> None:
    service = SlowService()
    server = TransferServer(service, KEYRING, ("n1", 1), ("127.0.0.1", 0), Clock(), tls)  # type: ignore[arg-type]  # one method is enough
    server.start()
    try:
        with a_client(tls=tls, settings=TransferSettings(timeout_s=0.2)) as client:
            gives_up(client, address(server))
    finally:
        service.go_on.set()
        server.drain(0.0)
