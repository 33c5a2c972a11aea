"""A process's report on its secrets: their fingerprints, and the uses of the also-accepted one."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from kvstore.keys.keyring import Keyring

_Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
_MAX_WHO = 128


class SecretUse(msgspec.Struct, frozen=True):
    """Uses of the also-accepted secret in a process."""

    purpose: Annotated[str, Meta(max_length=64)]
    count: _Count
    newest_at: float
    """Time of the latest use in Unix seconds."""
    who: Annotated[str, Meta(max_length=_MAX_WHO)] = ""
    """Sender of the latest use."""


class HeldSecrets(msgspec.Struct, frozen=True):
    """Fingerprints of the secrets of one kind in a process."""

    kind: Annotated[str, Meta(max_length=16)]
    used: Annotated[str, Meta(max_length=16)]
    also: Annotated[str, Meta(max_length=16)] = ""
    """Fingerprint of the also-accepted secret, empty without one."""
    uses: Annotated[tuple[SecretUse, ...], Meta(max_length=16)] = ()


def held_secrets(keyring: Keyring) -> HeldSecrets:
    """Return the report on a keyring."""
    uses = tuple(
        # A copy of the items: another thread may note its first use meanwhile.
        SecretUse(purpose, use.count, use.newest_at, use.who[:_MAX_WHO])
        for purpose, use in list(keyring.uses.items())
    )
    also = keyring.also.fingerprint if keyring.also is not None else ""
    return HeldSecrets(keyring.kind, keyring.used.fingerprint, also, uses)
