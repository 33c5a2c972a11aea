"""The handshake of a node's port: a peer without proof gets no access, whatever the length of its bytes.

Which connection is dropped when too many have not proved the secret yet.
"""

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
from kvstore.transfer.unproven import Unproven, source_of
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


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("fe80::1%eth0", "fe80::"),
        ("127.0.0.1", ""),
        ("::1", ""),
        ("", ""),
    ],
)
def test_a_source_is_an_address_or_its_ipv6_network(address: str, source: str) -> None:
    assert source_of(address) == source


def test_a_connection_over_the_limit_displaces_the_oldest() -> None:
    unproven: Unproven[str] = Unproven(2, 5.0)
    assert [unproven.enter(name, "10.0.0.1", 0.0) for name in "abcd"] == [None, None, "a", "b"]
    assert len(unproven) == 2


def test_a_source_displaces_its_own_connections_before_those_of_others() -> None:
    unproven: Unproven[str] = Unproven(4, 5.0)
    assert unproven.enter("client", "10.0.0.1", 0.0) is None
    displaced = [unproven.enter(f"stranger {number}", f"2001:db8::{number:x}", 0.0) for number in range(100)]
    assert displaced == [None] * 3 + [f"stranger {number}" for number in range(97)]
    assert unproven.leave("client")


def test_among_many_addresses_the_oldest_connection_is_dropped() -> None:
    unproven: Unproven[str] = Unproven(3, 5.0)
    assert [unproven.enter(name, f"10.0.0.{ord(name)}", 0.0) for name in "abcd"] == [None, None, None, "a"]


def test_connections_that_proved_the_secret_or_ended_no_longer_count() -> None:
    unproven: Unproven[str] = Unproven(2, 5.0)
    for name in "ab":
        unproven.enter(name, "10.0.0.1", 0.0)
    assert unproven.leave("a")
    assert not unproven.leave("a")
    assert unproven.enter("c", "10.0.0.1", 0.0) is None


def test_a_connection_is_late_after_its_timeout_whatever_it_does() -> None:
    unproven: Unproven[str] = Unproven(8, 5.0)
    unproven.enter("a", "10.0.0.1", 0.0)
    unproven.enter("b", "10.0.0.1", 3.0)
    assert unproven.late(4.9) == []
    assert unproven.late(5.0) == ["a"]
    assert not unproven.leave("a"), "it was closed already"
    assert unproven.late(8.0) == ["b"]
