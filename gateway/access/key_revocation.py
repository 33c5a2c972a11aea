"""The revocation of one API key while the database cannot be written, as published on the bus.

The bus keeps its last value for every gateway. After the database has stored the revocation, the value names the first
snapshot version without the key.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from gateway.contracts.wire import WireForm

TOPIC_PREFIX = "revoked-keys/"
"""Prefix of the last-value topics, one per key."""
LOST_TOPIC = "lost-revocations"
"""Stream topic of revocations that a gateway has on disk but the bus has lost."""
MAX_BYTES = 2000
MAX_WHY = 200
# The last second that a datetime can hold.
_YEAR_9999 = 253_402_300_799.0


class KeyRevocation(msgspec.Struct, frozen=True, kw_only=True):
    """A revoked key, who revoked it, and whether the database has stored the revocation."""

    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
    """Lower-case hex, as in snapshots."""
    key_id: Annotated[str, Meta(max_length=64)] = ""
    """Empty: no published snapshot contains the key."""
    at: Annotated[float, Meta(ge=0, le=_YEAR_9999)]
    """Unix seconds."""
    by: Annotated[str, Meta(max_length=150)]
    via: Annotated[str, Meta(max_length=16)]
    why: Annotated[str, Meta(max_length=MAX_WHY)] = ""
    request_id: Annotated[str, Meta(max_length=128)] = ""
    stored_as_of: Annotated[int, Meta(ge=0)] = 0
    """First snapshot version without the key; 0: the database has not stored the revocation."""

    @property
    def topic(self) -> str:
        """Return the bus topic of this revocation."""
        return f"{TOPIC_PREFIX}{self.sha256}"

    def holds_for(self, version: int) -> bool:
        """Return whether a snapshot of this version may still contain the key."""
        return not self.stored_as_of or version < self.stored_as_of

    def follows(self, known: KeyRevocation | None) -> bool:
        """Return whether this revocation replaces `known`. A stored revocation is final."""
        return known is None or self.stored_as_of > known.stored_as_of


_form = WireForm(KeyRevocation, "the revocation of a key", limit=MAX_BYTES)
encode_revocation, decode_revocation = _form.encode, _form.decode
