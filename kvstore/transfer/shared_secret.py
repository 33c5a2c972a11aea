"""The secret that all nodes and their clients share, as programs find it in their environment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kvstore.transfer.handshake import MIN_SECRET_BYTES

VARIABLE = "SWITCHYARD_KV_SECRET"


class NoSecretError(ValueError):
    """There is no secret, or a short one; the message says what to do."""


def shared_secret(environment: Mapping[str, str]) -> bytes:
    """Return the secret in SWITCHYARD_KV_SECRET or the file that SWITCHYARD_KV_SECRET_FILE names.

    Raises NoSecretError, and OSError for a file that cannot be read.
    """
    path = environment.get(f"{VARIABLE}_FILE", "")
    secret = Path(path).read_bytes().strip() if path else environment.get(VARIABLE, "").encode()
    if len(secret) < MIN_SECRET_BYTES:
        raise NoSecretError(f"Set {VARIABLE} to a secret of {MIN_SECRET_BYTES} bytes at least, the same for all nodes.")
    return secret
