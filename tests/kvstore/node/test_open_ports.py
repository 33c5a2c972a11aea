"""Resources that strangers can use on a node's metrics and events ports, which need no secret."""

from __future__ import annotations

import socket
import struct
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import pytest
import zmq
from prometheus_client import CollectorRegistry, Gauge

from bench.live.loopback_ports import free_ports
from kvstore.node import event_ports
from kvstore.node.metrics_port import MAX_CONNECTIONS, SCRAPE_S, MetricsPort
from kvstore.transfer.frames import Held, Lookup
from tests.kvstore.kv_blocks import a_client, address, node
from tests.kvstore.transfer.test_strangers import Clock, is_closed
from tests.patience import PATIENCE_S, wait_until

HALF_HEAD = b"GET /metrics HTTP/1.1\r\nX: "
BROKEN = [HALF_HEAD, b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n", b"GET //[ HTTP/1.1\r\n\r\n", bytes(9), b""]


@contextmanager
def scraped(clock: Clock) -> Iterator[MetricsPort]:
    registry = CollectorRegistry()
    Gauge("answered", "Always one.", registry=registry).set(1)
    port = MetricsPort(("127.0.0.1", 0), registry, clock)
    port.start()
    try:
        yield port
    finally:
        port.stop()


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port))


def scrape(port: int) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        return bytes(answer.read())


def test_metrics_are_served_while_strangers_hold_300_connections(capfd: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with scraped(clock) as served, ExitStack() as stack:
        strangers = [stack.enter_context(connect(served.server_port)) for _ in range(300)]
        for stranger in strangers[-MAX_CONNECTIONS::2]:
            stranger.sendall(HALF_HEAD)
        wait_until(lambda: sum(map(is_closed, strangers)) == 300 - MAX_CONNECTIONS)
        assert b"answered 1.0" in scrape(served.server_port)
        clock.now += SCRAPE_S
        wait_until(lambda: all(map(is_closed, strangers)))
        wait_until(lambda: len(served._open) == 0)
    assert capfd.readouterr() == ("", "")


def test_a_head_has_one_timeout_for_all_its_bytes() -> None:
    clock = Clock()
    with scraped(clock) as served, connect(served.server_port) as stranger:
        wait_until(lambda: len(served._open) == 1)
        for _ in range(4):
            stranger.sendall(b"GET"[:1])
            clock.now += SCRAPE_S / 4
        wait_until(lambda: is_closed(stranger))


@pytest.mark.parametrize("head", BROKEN)
def test_malformed_requests_are_not_logged(head: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    with scraped(Clock()) as served:
        with connect(served.server_port) as stranger:
            stranger.sendall(head)
            stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        wait_until(lambda: len(served._open) == 0)
        assert b"answered 1.0" in scrape(served.server_port)
    assert capfd.readouterr() == ("", "")


ZMTP_GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)


def spoken(port: int, kind: bytes) -> socket.socket:
    """Connect as a ZeroMQ socket of this kind."""
    sock = connect(port)
    body = b"\x05READY\x0bSocket-Type" + struct.pack(">I", len(kind)) + kind
    sock.sendall(ZMTP_GREETING + bytes([4, len(body)]) + body)
    return sock


@contextmanager
def publishing() -> Iterator[tuple[int, int, str]]:
    """Run a node; yield the ports of its events and of their replay, and its own address."""
    events, replay = free_ports(2)
    with node(events_port=events, replay_port=replay) as manager:
        yield events, replay, address(manager)


def replayed(port: int) -> bool:
    context = zmq.Context()
    dealer = context.socket(zmq.DEALER)
    try:
        dealer.connect(f"tcp://127.0.0.1:{port}")
        dealer.send_multipart([b"", bytes(8)])
        return bool(dealer.poll(60_000))
    finally:
        dealer.close(0)
        context.term()


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("kind", ["silent", "subscribed"])
def test_strangers_on_the_event_ports_cannot_exhaust_the_nodes_descriptors(kind: str) -> None:
    with publishing() as (events, replay, there), ExitStack() as stack:
        before = descriptors()
        strangers: list[socket.socket] = []
        for number in range(400):
            port, role = ((events, b"SUB"), (replay, b"DEALER"))[number % 2]
            strangers.append(stack.enter_context(connect(port) if kind == "silent" else spoken(port, role)))
        wait_until(lambda: sum(map(is_closed, strangers)) >= 400 - 2 * event_ports.MAX_CONNECTIONS)
        wait_until(lambda: descriptors() <= before + 400 + 2 * event_ports.MAX_CONNECTIONS + 8)
        with a_client() as client:
            assert client.call(there, Lookup([])) == Held([])
        assert replayed(replay)


def test_a_client_that_sends_endlessly_is_disconnected() -> None:
    """libzmq keeps every subscription, and every part of a message whose last part has not arrived."""
    with publishing() as (events, replay, _):
        for port, kind, part in ((events, b"SUB", b"\x00\x09\x01topic%03d"), (replay, b"DEALER", b"\x01\x08part%04d")):
            with spoken(port, kind) as stranger, pytest.raises(ConnectionError):
                # Without a limit, a port that is never closed would hold the test for ever.
                stranger.settimeout(PATIENCE_S)
                for number in range(10_000_000):  # many times what the buffers of both sockets hold
                    stranger.sendall(part % (number % 1000))
        assert replayed(replay)


@pytest.mark.parametrize(
    ("served", "kind", "part"),
    [(zmq.XPUB, b"SUB", b"\x00\x09\x01topic003"), (zmq.ROUTER, b"DEALER", b"\x00\x08part0003")],
)
def test_a_client_that_filled_the_receive_buffer_is_disconnected(served: int, kind: bytes, part: bytes) -> None:
    """The kernel resets no connection whose data it cannot take, and libzmq does not read a full connection's end."""
    with zmq.Context() as context, closing(context.socket(served)) as publisher:
        guarded = event_ports.GuardedPort(publisher)
        with spoken(publisher.bind_to_random_port("tcp://127.0.0.1"), kind) as stranger:
            assert len(stranger.recv(len(ZMTP_GREETING), socket.MSG_WAITALL)) == len(ZMTP_GREETING)
            stranger.settimeout(1)
            with pytest.raises(TimeoutError):
                for _ in range(1_000_000):
                    stranger.sendall(part * 100)
            stranger.settimeout(0.01)
            with pytest.raises(ConnectionError):
                wait_until(lambda: guarded.guard() or _sends(stranger, part))
        guarded.close()


def _sends(stranger: socket.socket, part: bytes) -> None:
    with suppress(TimeoutError):
        stranger.sendall(part)


def test_a_message_longer_than_any_gateway_sends_ends_its_connection() -> None:
    with publishing() as (_, replay, _), spoken(replay, b"DEALER") as stranger:
        stranger.sendall(b"\x02" + struct.pack(">Q", 1000))
        wait_until(lambda: is_closed(stranger))
