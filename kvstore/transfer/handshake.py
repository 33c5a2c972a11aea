"""Mutual proof by both ends of a connection that they have the KV secret, without sending it.

Each end proves it by HMAC-SHA256 over both nonces. Prefixes prevent a proof from being reflected. Without TLS, this
authenticates the peer, not each byte: a node listens beyond loopback only with TLS.
"""

from __future__ import annotations

import hashlib
import hmac

CONNECTIONS = "connections to KV nodes"
"""Purpose of the keys used by both ends for their proofs (kvstore.keys.keyring)."""
NONCE_BYTES = 32
PROOF_BYTES = 32
MIN_SECRET_BYTES = 16


class HandshakeError(ValueError):
    """A nonce has the wrong length, or a secret is too short."""


def client_proof(secret: bytes, server_nonce: bytes, client_nonce: bytes) -> bytes:
    """Return the client's response to a challenge. Raises HandshakeError."""
    return _proof(secret, b"headway kv client 1", server_nonce, client_nonce)


def server_proof(secret: bytes, server_nonce: bytes, client_nonce: bytes) -> bytes:
    """Return the server's response to a proven client. Raises HandshakeError."""
    return _proof(secret, b"headway kv server 1", server_nonce, client_nonce)


def proves(proof: bytes, expected: bytes) -> bool:
    """Compare proofs in constant time. A proof of any other length is invalid."""
    # Both lengths: two empty proofs would be equal.
    return len(proof) == len(expected) == PROOF_BYTES and hmac.compare_digest(proof, expected)


def _proof(secret: bytes, word: bytes, server_nonce: bytes, client_nonce: bytes) -> bytes:
    if len(server_nonce) != NONCE_BYTES or len(client_nonce) != NONCE_BYTES:
        raise HandshakeError(f"a nonce has {NONCE_BYTES} bytes")
    if len(secret) < MIN_SECRET_BYTES:
        raise HandshakeError(f"a secret has at least {MIN_SECRET_BYTES} bytes")
    return hmac.digest(secret, word + server_nonce + client_nonce, hashlib.sha256)
