"""Stores when each API key was last used, as reported by gateways on the bus. Writes each key at most once a minute."""

from __future__ import annotations

import functools
from datetime import UTC, datetime, timedelta

from celery import shared_task
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from controlplane.platform.bus import get_bus
from controlplane.platform.models.api_key import ApiKey
from controlplane.platform.stream_intake import NewestIntake
from gateway.bus.bus import Bus
from gateway.reports.key_usage import MAX_KEYS, TOPIC, decode_uses

WRITE_EVERY = timedelta(minutes=1)
_BATCH = 500


class KeyUsageIntake(NewestIntake[str, float]):
    """The last use, in unix seconds, of each key that is not stored yet."""

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus, TOPIC, lambda message: decode_uses(message).at, MAX_KEYS, newer=max)

    def store(self, now: datetime) -> int:
        """Write the uses that are due and return how many keys were written. Keep the other uses."""
        return self.settle(
            lambda at: store_last_uses({key: datetime.fromtimestamp(used_at, UTC) for key, used_at in at.items()}, now)
        )


def store_last_uses(uses: dict[str, datetime], now: datetime) -> tuple[set[str], int]:
    """Write the uses of keys last written at least a minute ago. Return the settled ids and the number of writes.

    An id is settled if it was written or needs no write (an unknown key, or a use that is already stored). A use in the
    future, from a gateway with a wrong clock, counts as now.
    """
    settled: set[str] = set()
    due: dict[str, datetime] = {}
    ids = sorted(uses)
    for start in range(0, len(ids), _BATCH):
        part = ids[start : start + _BATCH]
        stored = dict(ApiKey.objects.filter(key_id__in=part).values_list("key_id", "last_used_at"))
        for key_id in part:
            # A gateway's clock may be ahead.
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


@shared_task(name="controlplane.store_key_usage", ignore_result=True)
def store_key_usage() -> None:
    """Run every few seconds. The first run subscribes; later runs write the uses that are due."""
    intake().store(timezone.now())


@functools.cache
def intake() -> KeyUsageIntake:
    """Return the only KeyUsageIntake of this process."""
    return KeyUsageIntake(get_bus())
