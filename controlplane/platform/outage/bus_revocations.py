"""API keys that were revoked over the bus because the database was not writable."""

from __future__ import annotations

import functools
import logging
import threading
import time
from concurrent.futures import CancelledError
from typing import Any, cast

import msgspec

from controlplane.platform.actor import Actor
from controlplane.platform.bus import get_bus
from gateway.access.key_revocation import (
    LOST_TOPIC,
    MAX_WHY,
    TOPIC_PREFIX,
    KeyRevocation,
    decode_revocation,
    encode_revocation,
)
from gateway.bus.bus import Bus, BusAwayError
from gateway.contracts.wire import UnreadableMessageError

MAX_KNOWN = 10_000
_ANSWER_S = 2.0

logger = logging.getLogger(__name__)


class BusRevocations:
    """Revocations on the bus. Thread-safe. Mutable state, under `_lock`: the revocations, by SHA-256 of the key."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._lock = threading.Lock()
        self._known: dict[str, KeyRevocation] = {}
        bus.subscribe(TOPIC_PREFIX, lambda topic, value: self._take(topic, value, lost=False))
        bus.subscribe(LOST_TOPIC, lambda topic, value: self._take(topic, value, lost=True))

    def revokes(self, sha256: str) -> bool:
        """Return True for a revoked key whose revocation is not yet in the database."""
        known = self._known.get(sha256)
        return known is not None and not known.stored_as_of

    def waiting(self) -> list[KeyRevocation]:
        """Return the revocations that are not yet in the database."""
        with self._lock:
            return [item for item in self._known.values() if not item.stored_as_of]

    def publish(self, revocation: KeyRevocation) -> int:
        """Make all gateways reject a key. Return how many processes received the message. Raises BusAwayError."""
        if not self._bus.connected:
            raise BusAwayError("the bus cannot be reached")
        value = encode_revocation(revocation)
        self._bus.publish(revocation.topic, value)
        try:
            return self._bus.notify(revocation.topic, value).result(_ANSWER_S)
        except (TimeoutError, CancelledError) as error:
            raise BusAwayError("the bus does not answer") from error

    def note_stored(self, revocation: KeyRevocation, version: int) -> None:
        """Record that the revocation is stored.

        From this version, snapshots lack the key and gateways can rely on them.
        """
        # 0 means that the database has not stored it.
        stored = msgspec.structs.replace(revocation, stored_as_of=max(1, version))
        self._bus.publish(stored.topic, encode_revocation(stored))

    def _take(self, topic: str, value: bytes, *, lost: bool) -> None:
        try:
            revocation = decode_revocation(value)
        except UnreadableMessageError as error:
            logger.warning("a revocation cannot be read", extra={"topic": topic, "reason": str(error)})
            return
        with self._lock:
            if not revocation.follows(self._known.get(revocation.sha256)):
                return
            self._known[revocation.sha256] = revocation
            over = len(self._known) - MAX_KNOWN
            # Never one that waits: only this list makes the management API reject its key.
            for sha256 in [item.sha256 for item in self._known.values() if item.stored_as_of][: max(0, over)]:
                del self._known[sha256]
        if lost:
            # A gateway kept it on disk, and no other process has it.
            self._bus.publish(revocation.topic, value)


def revocation_of(sha256: str, key_id: str, *, actor: Actor, why: str = "") -> KeyRevocation:
    """Return a revocation of a key by this actor, dated now."""
    return KeyRevocation(
        sha256=sha256,
        key_id=key_id,
        at=time.time(),
        by=actor.name[:150],
        via=actor.via,
        why=why[:MAX_WHY],
        request_id=actor.request_id[:128],
    )


def bus_revocations() -> BusRevocations:
    """Return this process's BusRevocations, which follows the bus from the first call."""
    return _following(cast("Any", get_bus()))


_following = functools.lru_cache(maxsize=1)(BusRevocations)
