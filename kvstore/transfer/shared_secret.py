"""Read secrets and TLS certificates shared by processes from their environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kvstore.keys.keyring import KV, MIN_CHARACTERS, Keyring, is_weak
from kvstore.transfer.tls import TlsFiles, tls_files

VARIABLE, ALSO_VARIABLE = "HEADWAY_KV_SECRET", "HEADWAY_KV_SECRET_ALSO"
"""The used secret, and the also-accepted one."""
TLS_VARIABLES = ("HEADWAY_KV_TLS_CERTIFICATE", "HEADWAY_KV_TLS_KEY", "HEADWAY_KV_TLS_AUTHORITY")


class NoSecretError(ValueError):
    """A secret is missing or weak. The message states the remedy."""


@dataclass(frozen=True, slots=True)
class NodeAccess:
    """How a client connects to node managers."""

    keyring: Keyring | None = field(default=None, repr=False)
    """None if no node can be reached."""
    tls: TlsFiles | None = None
    """None if only nodes on loopback can be reached."""


def node_access(environment: Mapping[str, str], wall: Callable[[], float] = lambda: 0.0) -> NodeAccess:
    """Return how a program for which node managers are optional connects to them.

    Without a secret it does not connect. Raises NoSecretError for a weak secret, IncompleteTlsError, and OSError for an
    unreadable file.
    """
    if not environment.get(VARIABLE) and not environment.get(f"{VARIABLE}_FILE"):
        return NodeAccess()
    return NodeAccess(kv_keyring(environment, wall), tls_in(environment))


def readable(access: NodeAccess) -> NodeAccess:
    """Return `access` unchanged. Raises OSError if a certificate cannot be read or used."""
    if access.tls is not None:
        access.tls.client()
    return access


def kv_keyring(environment: Mapping[str, str], wall: Callable[[], float] = lambda: 0.0) -> Keyring:
    """Return the secrets in HEADWAY_KV_SECRET and HEADWAY_KV_SECRET_ALSO, as `keyring_in` does."""
    return keyring_in(environment, (VARIABLE, ALSO_VARIABLE), KV, wall)


def keyring_in(
    environment: Mapping[str, str], variables: tuple[str, str], kind: str, wall: Callable[[], float]
) -> Keyring:
    """Return the used and the accepted secret from two variables, or from the files that their `…_FILE` variables name.

    Raises NoSecretError if the first is missing or either is weak, and OSError for an unreadable file.
    """
    secret, also = (_text(environment, name) for name in variables)
    for name, value in zip(variables, (secret, also), strict=True):
        if is_weak(value) and (value or name == variables[0]):
            raise NoSecretError(
                f"Set {name} to a secret of at least {MIN_CHARACTERS} random characters, the same for all processes "
                "that share it: `openssl rand -base64 48`."
            )
    # Bytes that are not UTF-8 are a valid secret, too.
    return Keyring.of(secret.encode(errors="surrogateescape"), also.encode(errors="surrogateescape"), kind, wall)


def _text(environment: Mapping[str, str], name: str) -> str:
    path = environment.get(f"{name}_FILE", "")
    # Editors and `echo` end a file with a newline, which belongs to no secret.
    return Path(path).read_text(errors="surrogateescape").strip() if path else environment.get(name, "")


def tls_in(environment: Mapping[str, str]) -> TlsFiles | None:
    """Return the files named by TLS_VARIABLES, or None. Raises IncompleteTlsError."""
    return tls_files([environment.get(name, "") for name in TLS_VARIABLES], TLS_VARIABLES)
