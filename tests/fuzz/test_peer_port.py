"""The peer port: only a single-use proof of the fleet secret reaches a handler; other bytes leave no state behind."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterator
from contextlib import suppress

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from gateway.peers.links.peer_link import PeerLinks
from gateway.peers.links.peer_proof import (
    CHALLENGE_S,
    IDENTITY_HEADER,
    PROOF_HEADER,
    SIGNED_HEADER,
    PeerIdentity,
    PeerProofs,
    PeerSession,
)
from kvstore.keys.keyring import Keyring
from tests.fuzz.mutations import near
from tests.gateway.raw_http import RawConnection

KEYRING = Keyring.of(b"the secret of a fleet of gateways")
OTHER = Keyring.of(b"the secret of another fleet of gateways")
ME = PeerIdentity("aaaaaaaa", "us", "gateway-1")
NAMES = (IDENTITY_HEADER, PROOF_HEADER, SIGNED_HEADER)
_STATUS = re.compile(rb"HTTP/\d\.\d (\d{3}) ")
_TURNS = 20
"""Turns of the loop within which sent bytes are answered, or wait for more."""
Fields = tuple[bytes, ...]
"""Values of NAMES, as far as they are used."""


def fields_of(headers: dict[str, str]) -> Fields:
    return tuple(headers[name].encode() for name in NAMES if name in headers)


def answer_to(listening: PeerProofs, keyring: Keyring = KEYRING) -> tuple[Fields, PeerSession]:
    """Return the response to a challenge of this gateway, and the session of the responding peer."""
    headers, session = PeerProofs(ME, keyring).answer(listening.challenge())
    return fields_of(headers), session


def as_headers(fields: Fields, names: tuple[str, ...]) -> dict[str, str]:
    """Return the headers as aiohttp reads them."""
    return {name: value.decode("utf-8", "surrogateescape") for name, value in zip(names, fields, strict=True) if value}


@st.composite
def offered(draw: st.DrawFn, made: list[Fields]) -> Fields:
    """Draw a proof: parts of several proofs, possibly changed, or arbitrary values."""
    parts = tuple(
        draw(st.sampled_from(column) | near(column) | st.binary(max_size=90))
        for column in map(list, zip(*made, strict=True))
    )
    return draw(st.sampled_from([*made, parts]))


@given(data=st.data())
def test_only_a_response_with_the_secret_to_our_challenge_is_accepted_and_only_once(data: st.DataObject) -> None:
    now = 1000.0
    proofs, elsewhere = (
        PeerProofs(PeerIdentity(tag, "eu"), KEYRING, clock=lambda: now) for tag in ("bbbbbbbb", "cccccccc")
    )
    late, _ = answer_to(proofs)
    now += CHALLENGE_S + 1
    fresh = [answer_to(proofs)[0] for _ in range(3)]
    foreign = [answer_to(proofs, OTHER)[0], answer_to(elsewhere)[0], late]
    unused = set(fresh)
    for _ in range(4):
        fields = data.draw(offered(fresh + foreign))
        session = proofs.accept(as_headers(fields, NAMES[:2]))
        assert (session is not None and session.peer == ME) == (fields in unused)
        unused.discard(fields)
        assert len(proofs._answered) == len(proofs._sessions) == len(fresh) - len(unused)
    now += CHALLENGE_S + 1
    assert proofs.accept(as_headers(answer_to(proofs)[0], NAMES[:2])) is not None
    assert len(proofs._answered) == 1


@given(data=st.data())
def test_only_messages_signed_by_a_connected_peer_are_accepted_and_only_once(data: st.DataObject) -> None:
    proofs = PeerProofs(PeerIdentity("bbbbbbbb", "eu"), KEYRING)
    fields, session = answer_to(proofs)
    assert proofs.accept(as_headers(fields, NAMES[:2])) is not None
    fresh = [fields_of(session.headers(signed)) for signed in (b"head", b"other", b"third")]
    foreign = [fields_of(answer_to(proofs)[1].headers(b"head")), fields_of(answer_to(proofs, OTHER)[1].headers(b"x"))]
    unused = set(fresh)
    for _ in range(4):
        fields = data.draw(offered(fresh + foreign))
        assert (proofs.proved(as_headers(fields, NAMES[1:])) == ME) == (fields in unused)
        unused.discard(fields)


LINES = [
    b"GET /peer HTTP/1.1\r\n", b"POST /forward/v1/chat/completions HTTP/1.1\r\n", b"Host: x\r\n", b"Host: \xff\r\n",
    b"Connection: Upgrade\r\nUpgrade: websocket\r\n", b"Sec-WebSocket-Version: 13\r\n", b"Content-Length: 3\r\n",
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", b"Transfer-Encoding: chunked\r\n", b"Expect: 100-continue\r\n",
    b"\r\n", b"abc", b"3\r\nabc\r\n", b"0\r\n\r\n", b"\x81\x85aaaahello", b"PRI * HTTP/2.0\r\n\r\n", b"x" * 9000,
    b"x-y: " + b"y" * 70_000, b"GET //[ HTTP/1.1\r\n", b"\x16\x03\x01\x02\x00",
]  # fmt: skip


class Port:
    """A peer port with a gateway's routes, on a separate loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.reached = 0
        self.links = PeerLinks(PeerIdentity("bbbbbbbb", "eu"), KEYRING)
        self.links.app.router.add_post("/forward{path:/.*}", self._forward)
        self.url = f"http://127.0.0.1:{loop.run_until_complete(self.links.start('127.0.0.1', 0))}"
        self.logged: list[logging.LogRecord] = []

    async def _forward(self, _request: web.Request) -> web.StreamResponse:
        self.reached += 1
        return web.Response()

    async def feed(self, data: bytes) -> bytes:
        """Send bytes and EOF; return the responses until the port closes the connection."""
        client, answer = await RawConnection.open(self.url), b""
        with suppress(OSError):
            client._writer.write(data)
            for _ in range(_TURNS):
                await asyncio.sleep(0)
            client._writer.write_eof()
            while part := await client._reader.read(65536):
                answer += part
        await client.close()
        while self.links._port._open:
            await asyncio.sleep(0)
        return answer


@pytest.fixture(scope="module")
def port() -> Iterator[Port]:
    loop = asyncio.new_event_loop()
    opened = Port(loop)
    handler = logging.Handler(logging.WARNING)
    handler.emit = opened.logged.append  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    yield opened
    logging.getLogger().removeHandler(handler)
    loop.run_until_complete(opened.links.stop())
    loop.close()


def lines_of(headers: dict[str, str]) -> list[bytes]:
    return [b"%s: %s\r\n" % (name.encode(), value.encode()) for name, value in headers.items()]


@given(data=st.data())
def test_bytes_without_a_proof_reach_no_handler_and_a_peer_does(port: Port, data: st.DataObject) -> None:
    before, links = port.reached, port.links
    connects, session = PeerProofs(ME, OTHER).answer(links._proofs.challenge())
    foreign = lines_of({**session.headers(b"head"), **connects})
    upgrade = b"".join([LINES[0], LINES[2], *LINES[4:6], LINES[7], *foreign, b"\r\n"])
    forward = b"".join([LINES[1], LINES[2], LINES[6], *foreign, b"\r\nabc"])
    lines = st.sampled_from(LINES + foreign) | near(foreign) | st.binary(max_size=20)
    sent = data.draw(st.lists(lines, max_size=14).map(b"".join) | near([upgrade, forward, upgrade + forward]))
    sessions = len(links._proofs._sessions)
    answer = port.loop.run_until_complete(port.feed(sent))
    assert set(_STATUS.findall(answer)) <= {b"100", b"400", b"401"}, answer
    assert port.reached == before
    assert len(links._port._unproven) == 0
    assert not links._port._limit._open
    assert len(links._proofs._sessions) == sessions
    assert not port.logged, port.logged
    fields, session = answer_to(links._proofs)
    accepted = links._proofs.accept(as_headers(fields, NAMES[:2]))
    assert accepted is not None
    right = b"POST /forward/v1 HTTP/1.1\r\nHost: x\r\n%s\r\n" % b"".join(lines_of(session.headers(b"head")))
    assert port.loop.run_until_complete(port.feed(right)).startswith(b"HTTP/1.1 200")
    assert port.reached == before + 1
    links._proofs.end(accepted)
