"""What nodes and their clients share, as programs find it in their environment: a secret, and certificates for TLS."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kvstore.transfer.handshake import MIN_SECRET_BYTES
from kvstore.transfer.tls import TlsFiles, tls_files

VARIABLE = "SWITCHYARD_KV_SECRET"
TLS_VARIABLES = ("SWITCHYARD_KV_TLS_CERTIFICATE", "SWITCHYARD_KV_TLS_KEY", "SWITCHYARD_KV_TLS_AUTHORITY")


class NoSecretError(ValueError):
    """There is no secret, or a short one; the message says what to do."""


@dataclass(frozen=True, slots=True)
class NodeAccess:
    """How a client reaches node managers."""

    secret: bytes = field(default=b"", repr=False)
    """Empty: none may be reached."""
    tls: TlsFiles | None = None
    """None: only those on loopback."""


def node_access(environment: Mapping[str, str]) -> NodeAccess:
    """Return how a program that needs no node manager reaches them: not at all where it has no secret.

    Raises NoSecretError for a short secret, IncompleteTlsError, and OSError for a file that cannot be read.
    """
    if not environment.get(VARIABLE) and not environment.get(f"{VARIABLE}_FILE"):
        return NodeAccess()
    return NodeAccess(shared_secret(environment), tls_in(environment))


def readable(access: NodeAccess) -> NodeAccess:
    """Return the same; raises OSError where a certificate cannot be read or used."""
    if access.tls is not None:
        access.tls.client()
    return access


def shared_secret(environment: Mapping[str, str]) -> bytes:
    """Return the secret in SWITCHYARD_KV_SECRET or the file that SWITCHYARD_KV_SECRET_FILE names.

    Raises NoSecretError, and OSError for a file that cannot be read.
    """
    path = environment.get(f"{VARIABLE}_FILE", "")
    secret = Path(path).read_bytes().strip() if path else environment.get(VARIABLE, "").encode()
    if len(secret) < MIN_SECRET_BYTES:
        raise NoSecretError(f"Set {VARIABLE} to a secret of {MIN_SECRET_BYTES} bytes at least, the same for all nodes.")
    return secret


def tls_in(environment: Mapping[str, str]) -> TlsFiles | None:
    """Return the files that TLS_VARIABLES name; None where they name none; raises IncompleteTlsError."""
    return tls_files([environment.get(name, "") for name in TLS_VARIABLES], TLS_VARIABLES)
