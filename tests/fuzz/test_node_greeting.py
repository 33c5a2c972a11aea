"""The greeting between nodes and clients: only the secret passes it, and other bytes leave no state behind.

Behind it, bytes of a client with the secret are answered or end the connection.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstore.transfer.connection import Connection, PeerError
from kvstore.transfer.frames import (
    HEAD_BYTES,
    Abort,
    Allocate,
    Challenge,
    Commit,
    ContentsPage,
    Describe,
    Done,
    Get,
    Held,
    Hello,
    Lookup,
    Message,
    Pin,
    Purge,
    Put,
    Suspect,
    Welcome,
    Write,
    decode,
    decode_head,
    encode,
)
from kvstore.transfer.handshake import CONNECTIONS, client_proof, server_proof
from kvstore.transfer.transfer_server import MAX_LINKS, TransferServer
from tests.fuzz.mutations import near
from tests.kvstore.kv_blocks import KEYRING, block, key, node
from tests.kvstore.transfer.test_strangers import Clock
from tests.patience import wait_until

OURS = bytes(range(32))
"""The nonce of all greetings that this test makes."""
KEYS = KEYRING.keys(CONNECTIONS)
OTHER = bytes(range(32))
FACTS, PAYLOAD = block("a", length=40)
REQUESTS: list[bytes] = [
    encode(Put([FACTS]), len(PAYLOAD)) + bytes(PAYLOAD),
    *map(
        encode,
        (
            Lookup([key("a")]), Get([key("a")], 1000), Allocate("t", [key("a")], [FACTS], 1.0), Commit("t"), Abort("t"),
            Pin([key("a")], 1.0), Suspect(key("a")), Describe([7]), ContentsPage(0, 9), Purge("acme"),
            Write("t", [key("a")], [bytes(16)]), Done(1), Held([]),
        ),
    ),
]  # fmt: skip


class Node:
    """A server of a real node with a frozen clock, so that no timeout closes a connection."""

    def __init__(self, server: TransferServer) -> None:
        self.server = server
        self.faults: list[object] = []
        with self._connect() as (_, nonce):
            self.seen = nonce
            """Nonce of an earlier challenge: its answer must not answer another."""

    @staticmethod
    def _read(sock: socket.socket) -> bytes:
        received = b""
        with suppress(ConnectionError):
            while part := sock.recv(65536):
                received += part
        return received

    def _connect(self) -> Any:
        return _Connected(self.server.port)

    def tried(self, stack: ExitStack) -> tuple[socket.socket, bytes]:
        """Return a new connection and its challenge's nonce, once all earlier connections have ended."""
        wait_until(lambda: self.server._threads == 0)
        return stack.enter_context(self._connect())

    def answer_to(self, sock: socket.socket, sent: bytes) -> bytes:
        """Send bytes and EOF; return all bytes after the challenge until the node closes the connection."""
        with suppress(OSError):
            sock.sendall(sent)
            sock.shutdown(socket.SHUT_WR)
        return self._read(sock)

    def check(self) -> None:
        """Fail if a connection has left state behind, or a client with the secret is no longer served."""
        wait_until(lambda: self.server._threads == 0)
        assert len(self.server) == len(self.server._unproven) == 0
        assert len(self.server.links.links()) <= MAX_LINKS
        assert not self.faults, self.faults
        with self._connect() as (sock, nonce):
            lookup = encode(Hello(OURS, client_proof(KEYS.used, nonce, OURS), "right")) + encode(Lookup([]))
            messages = list(read_all(self.answer_to(sock, lookup)))
        assert messages == [Welcome(server_proof(KEYS.used, nonce, OURS), "n1", 1), Held([])]


class _Connected:
    def __init__(self, port: int) -> None:
        self._sock = socket.create_connection(("127.0.0.1", port))

    def __enter__(self) -> tuple[socket.socket, bytes]:
        challenge, _ = Connection(self._sock).receive(greeting=True)
        assert isinstance(challenge, Challenge)
        return self._sock, challenge.nonce

    def __exit__(self, *_: object) -> None:
        self._sock.close()


def read_all(data: bytes) -> Iterator[Message]:
    """Yield the messages of whole frames, without their payloads."""
    while data:
        body, payload = decode_head(data[:HEAD_BYTES])
        yield decode(data[HEAD_BYTES : HEAD_BYTES + body], payload)
        data = data[HEAD_BYTES + body + payload :]


@pytest.fixture(scope="module")
def served() -> Iterator[Node]:
    with node(slots={"dram_slots": 8}) as manager:
        server = TransferServer(manager.server._service, KEYRING, ("n1", 1), ("127.0.0.1", 0), Clock())
        server.start()
        tried, before = Node(server), threading.excepthook
        threading.excepthook = tried.faults.append
        yield tried
        threading.excepthook = before
        server.drain(0.0)


def greetings(nonce: bytes, seen: bytes) -> list[bytes]:
    """Return greetings: the right one first, then invalid ones."""
    proof, names = client_proof(KEYS.used, nonce, OURS), ("", "n" * 64)
    right = [encode(Hello(OURS, proof, name)) for name in names]
    wrong: list[Message] = [
        Hello(OURS, client_proof(OTHER, nonce, OURS)),
        Hello(OURS, client_proof(KEYS.used, seen, OURS)),
        Hello(nonce, nonce),
        Hello(nonce, bytes(32)),
        Hello(seen, client_proof(OTHER, seen, nonce)),
        Hello(b"", b""),
        Hello(OURS, bytes(32), "n" * 64),
        Challenge(nonce),
        Welcome(nonce, "n1", 1),
        Lookup([]),
    ]
    return [*right, *map(encode, wrong), *REQUESTS]


@given(data=st.data())
def test_only_the_secret_passes_a_nodes_greeting(served: Node, data: st.DataObject) -> None:
    with ExitStack() as stack:
        sock, nonce = served.tried(stack)
        seeds = greetings(nonce, served.seen)
        whole = st.lists(st.sampled_from(seeds[2:]), min_size=1, max_size=3).map(b"".join)
        cut = st.tuples(st.sampled_from(seeds), st.integers(0, 200)).map(lambda of: of[0][: of[1]])
        sent = data.draw(st.binary(max_size=600) | near(seeds) | whole | cut)
        rejected = served.server.rejected["unproved"]
        answer = served.answer_to(sock, sent)
        if answer:
            assert client_proof(KEYS.used, nonce, OURS) in sent
            assert isinstance(next(read_all(answer)), Welcome)
    served.check()
    assert served.server.rejected["unproved"] == rejected + (not answer)


@given(data=st.data())
def test_bytes_of_a_client_with_the_secret_are_answered_or_end_its_connection(
    served: Node, data: st.DataObject
) -> None:
    with ExitStack() as stack:
        sock, nonce = served.tried(stack)
        hello = encode(Hello(OURS, client_proof(KEYS.used, nonce, OURS)))
        pieces = st.lists(st.sampled_from(REQUESTS) | near(REQUESTS) | st.binary(max_size=60), max_size=4)
        answer = served.answer_to(sock, hello + b"".join(data.draw(pieces)))
        messages = list(read_all(answer))
        assert isinstance(messages[0], Welcome)
    served.check()


@given(data=st.data())
def test_a_client_rejects_a_node_without_the_secret(data: st.DataObject) -> None:
    nonce = data.draw(st.binary(max_size=40) | st.just(OURS))
    challenges = [encode(item) for item in (Challenge(nonce), Hello(nonce, OURS), Welcome(OURS, "n1", 1))]
    proofs = (OURS, nonce, b"", server_proof(OTHER, OURS, OURS), client_proof(KEYS.used, OURS, OURS))
    welcomes = [encode(Welcome(proof, "n1", 1)) for proof in proofs]
    sent = data.draw(near(challenges) | st.just(challenges[0])) + data.draw(near(welcomes) | st.sampled_from(welcomes))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(sent)
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(PeerError):
            Connection(ours).greet_node(KEYS)


@given(near([OURS]))
def test_a_client_rejects_a_node_that_echoes_its_proof(nonce: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:

        def impostor() -> None:
            with suppress(OSError, ValueError):
                connection = Connection(theirs)
                connection.send(Challenge(nonce))
                hello, _ = connection.receive(greeting=True)
                assert isinstance(hello, Hello)
                connection.send(Welcome(hello.proof, "n1", 1))

        thread = threading.Thread(target=impostor)
        thread.start()
        with pytest.raises(PeerError):
            Connection(ours).greet_node(KEYS)
        ours.close()
        thread.join()
