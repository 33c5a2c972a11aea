"""The secret by which node managers know their clients."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

VARIABLE = "SWITCHYARD_KV_SECRET"


def kv_secret(environment: Mapping[str, str]) -> bytes:
    """Return the secret, from the variable or the file that VARIABLE_FILE names; empty: there is none.

    Raises OSError where the file cannot be read.
    """
    path = environment.get(f"{VARIABLE}_FILE", "")
    return Path(path).read_bytes().strip() if path else environment.get(VARIABLE, "").encode()
