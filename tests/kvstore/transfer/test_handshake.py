"""The handshake of a node's port: a peer without proof gets no access, whatever the length of its bytes."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kvstore.node.node_manager import NodeManager
from kvstore.transfer.connection import Connection, PeerError
from kvstore.transfer.frames import Challenge, Done, Hello, Lookup, Message, Purge, Welcome
from kvstore.transfer.handshake import (
    CONNECTIONS,
    MIN_SECRET_BYTES,
    NONCE_BYTES,
    PROOF_BYTES,
    HandshakeError,
    client_proof,
    proves,
    server_proof,
)
from tests.kvstore.kv_blocks import KEYRING, a_client, address, block, key, node
from tests.patience import wait_until

KEYS = KEYRING.keys(CONNECTIONS)
KEYS = KEYRING.keys(CONNECTIONS)
LENGTHS = range(65)
NONCE = bytes(NONCE_BYTES)


@contextmanager
def challenged(manager: NodeManager) -> Iterator[tuple[Connection, bytes]]:
    """Connect without the secret; yield the connection and the node's nonce."""
    with socket.create_connection(("127.0.0.1", manager.port)) as sock:
        connection = Connection(sock, 5.0)
        challenge, _ = connection.receive(greeting=True)
        assert isinstance(challenge, Challenge)
        yield connection, challenge.nonce


def answered(manager: NodeManager, hello: Hello, then: Message) -> Message | None:
    """Return the message after a greeting, or None if the node closed the connection without one."""
    with challenged(manager) as (connection, _):
        try:
            connection.send(hello)
            connection.send(then)
            return connection.receive(greeting=True)[0]
        except PeerError:
            return None


def test_an_empty_greeting_neither_reads_nor_purges() -> None:
    with node() as manager, a_client() as client:
        client.put(address(manager), [block("a")])
        for message in (Lookup([key("a")]), Purge("acme")):
            assert answered(manager, Hello(b"", b"", "nobody"), message) is None
        assert client.call(address(manager), Purge("acme")) == Done(1)


def test_nonces_and_proofs_of_every_length_are_rejected_and_counted() -> None:
    with node() as manager:
        tries = [(nonce, proof) for nonce in LENGTHS for proof in {0, nonce, PROOF_BYTES}]
        tries += [(NONCE_BYTES, proof) for proof in LENGTHS]
        for nonce, proof in tries:
            assert answered(manager, Hello(bytes(nonce), bytes(proof)), Lookup([])) is None, (nonce, proof)
        wait_until(lambda: manager.server.rejected["unproved"] == len(tries))


def test_a_part_of_the_right_proof_is_rejected() -> None:
    with node() as manager:
        for length in LENGTHS:
            with challenged(manager) as (connection, nonce):
                right = client_proof(KEYS.used, nonce, NONCE)
                connection.send(Hello(NONCE, (right + right)[:length]))
                if length == PROOF_BYTES:
                    assert isinstance(connection.receive(greeting=True)[0], Welcome)
                else:
                    with pytest.raises(PeerError):
                        connection.receive(greeting=True)


def test_a_client_disconnects_if_a_node_sends_a_nonce_or_proof_of_wrong_length() -> None:
    for nonce, proof in [(length, 0) for length in LENGTHS] + [(NONCE_BYTES, length) for length in LENGTHS]:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            node_end = Connection(theirs, 5.0)
            node_end.send(Challenge(bytes(nonce)))
            node_end.send(Welcome(bytes(proof), "n1", 1))
            with pytest.raises(PeerError):
                Connection(ours, 5.0).greet_node(KEYS)


@pytest.mark.parametrize("make", [client_proof, server_proof])
def test_no_proof_is_created_from_a_short_secret_or_a_nonce_of_wrong_length(make) -> None:
    for length in set(LENGTHS) - {NONCE_BYTES}:
        for nonces in ((bytes(length), NONCE), (NONCE, bytes(length))):
            with pytest.raises(HandshakeError, match="nonce"):
                make(KEYS.used, *nonces)
    for length in range(MIN_SECRET_BYTES):
        with pytest.raises(HandshakeError, match="secret"):
            make(KEYS.used[:length], NONCE, NONCE)


def test_equal_bytes_of_a_wrong_length_prove_nothing() -> None:
    for length in LENGTHS:
        assert proves(bytes(length), bytes(length)) == (length == PROOF_BYTES)
