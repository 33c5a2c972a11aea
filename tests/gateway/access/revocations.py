"""Revocations for tests."""

from __future__ import annotations

from typing import Any

from gateway.access.key_revocation import KeyRevocation


def revocation(number: int = 0, **fields: Any) -> KeyRevocation:
    """Return the revocation of the key whose SHA-256 ends in this number."""
    known: dict[str, Any] = {
        "sha256": f"{number:064x}",
        "key_id": f"key-{number}",
        "at": 100.0,
        "by": "ann",
        "via": "api",
    }
    return KeyRevocation(**{**known, **fields})
