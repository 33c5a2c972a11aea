"""Mutual proof by both ends of a connection that they have the fleet's KV secret, without sending it.

Each proves it by HMAC-SHA256 over both nonces; the words in front keep a proof from being sent back. Without TLS this
authenticates the peer, not each byte: a node listens beyond loopback only with TLS.
"""

from __future__ import annotations

import hashlib
import hmac

CONNECTIONS = "connections to KV nodes"
"""Purpose of the keys by which both ends prove themselves (kvstore.keys.keyring)."""
NONCE_BYTES = 32
PROOF_BYTES = 32
MIN_SECRET_BYTES = 16


class HandshakeError(ValueError):
    """A nonce of another length, or a secret that is too short to prove anything."""


def client_proof(secret: bytes, server_nonce: bytes, client_nonce: bytes) -> bytes:
    """Return the client's answer to a challenge; raises HandshakeError."""
    return _proof(secret, b"headway kv client 1", server_nonce, client_nonce)


def server_proof(secret: bytes, server_nonce: bytes, client_nonce: bytes) -> bytes:
    """Return the server's answer to a proven client; raises HandshakeError."""
    return _proof(secret, b"headway kv server 1", server_nonce, client_nonce)


def proves(proof: bytes, expected: bytes) -> bool:
    """Compare proofs in constant time; a proof of another length, on either side, proves nothing."""
    # Both lengths: two empty proofs would be equal.
    return len(proof) == len(expected) == PROOF_BYTES and hmac.compare_digest(proof, expected)


def _proof(secret: bytes, word: bytes, server_nonce: bytes, client_nonce: bytes) -> bytes:
    if len(server_nonce) != NONCE_BYTES or len(client_nonce) != NONCE_BYTES:
        raise HandshakeError(f"a nonce has {NONCE_BYTES} bytes")
    if len(secret) < MIN_SECRET_BYTES:
        raise HandshakeError(f"a secret has at least {MIN_SECRET_BYTES} bytes")
    return hmac.digest(secret, word + server_nonce + client_nonce, hashlib.sha256)
