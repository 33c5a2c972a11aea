"""Keeps when each API key was used last, as gateways tell it over the bus; at most one write a minute and key."""

from __future__ import annotations

import logging
import threading
from datetime import UTC, datetime, timedelta

from django.db import transaction
from django.db.models import Q

from controlplane.platform.models.api_key import ApiKey
from gateway.bus.bus import Bus
from gateway.contracts.wire import UnreadableMessageError
from gateway.reports.key_usage import MAX_KEYS, TOPIC, decode_uses

logger = logging.getLogger(__name__)

WRITE_EVERY = timedelta(minutes=1)
_BATCH = 500


class KeyUsageIntake:
    """Collects uses from the bus, in the publisher's thread, until they are stored.

    Mutable state, under `_lock`: the last use of each key that is not stored yet.
    """

    def __init__(self, bus: Bus) -> None:
        self._lock = threading.Lock()
        self._at: dict[str, float] = {}
        self._unsubscribe = bus.subscribe(TOPIC, self._hear)

    def stop(self) -> None:
        """Hear no more."""
        self._unsubscribe()

    def store(self, now: datetime) -> int:
        """Write what is due and return how many keys were written; what is not due yet is kept."""
        with self._lock:
            known = dict(self._at)
        uses = {key_id: datetime.fromtimestamp(at, UTC) for key_id, at in known.items()}
        settled, written = store_last_uses(uses, now)
        with self._lock:
            for key_id in settled:
                if self._at.get(key_id) == known[key_id]:
                    del self._at[key_id]
        return written

    def _hear(self, _topic: str, value: bytes) -> None:
        try:
            uses = decode_uses(value).at
        except UnreadableMessageError as error:
            logger.warning("uses of API keys cannot be read", extra={"reason": str(error)})
            return
        with self._lock:
            for key_id, at in uses.items():
                if len(self._at) < MAX_KEYS or key_id in self._at:
                    self._at[key_id] = max(at, self._at.get(key_id, 0.0))


def store_last_uses(uses: dict[str, datetime], now: datetime) -> tuple[set[str], int]:
    """Write the uses of keys that were last written a minute ago; returns the ids that are settled, and the writes.

    Settled are the written ones and those that need no write: unknown keys, and uses that are known.
    A use that lies in the future (a gateway's clock is wrong) counts as now.
    """
    settled: set[str] = set()
    due: dict[str, datetime] = {}
    ids = sorted(uses)
    for start in range(0, len(ids), _BATCH):
        part = ids[start : start + _BATCH]
        stored = dict(ApiKey.objects.filter(key_id__in=part).values_list("key_id", "last_used_at"))
        for key_id in part:
            last, at = stored.get(key_id), min(uses[key_id], now)
            if key_id not in stored or (last is not None and at <= last):
                settled.add(key_id)
            elif last is None or now - last >= WRITE_EVERY:
                due[key_id] = at
    _write(due)
    return settled | set(due), len(due)


def _write(uses: dict[str, datetime]) -> None:
    if not uses:
        return
    with transaction.atomic():
        for key_id, at in uses.items():
            # Two processes may store at once: the later use stays.
            older = Q(last_used_at=None) | Q(last_used_at__lt=at)
            ApiKey.objects.filter(older, key_id=key_id).update(last_used_at=at)
