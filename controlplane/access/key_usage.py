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
from gateway.contracts.snapshot import PREVIOUS_SECRET
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


_COLUMNS = {"": "last_used_at", PREVIOUS_SECRET: "previous_used_at"}
_SETTLING = timedelta(seconds=5)
"""After a rotation, gateways may report the previous secret under the key's own name for as long."""


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
        stored = {key.key_id: key for key in ApiKey.objects.filter(key_id__in={_split(name)[0] for name in part})}
        for name in part:
            key_id, column = _split(name)
            key = stored.get(key_id)
            last = getattr(key, column, None)
            # A gateway's clock may be ahead.
            at = min(uses[name], now)
            if key is None or (last is not None and at <= last) or _is_of_previous(key, column, at):
                settled.add(name)
            elif last is None or now - last >= WRITE_EVERY:
                due[name] = at
    _write(due)
    return settled | set(due), len(due)


def _split(name: str) -> tuple[str, str]:
    """Return the key's id and the column of the secret that was used."""
    key_id, separator, kind = name.partition("/")
    return key_id, _COLUMNS.get(separator + kind, _COLUMNS[""])


def _is_of_previous(key: ApiKey, column: str, at: datetime) -> bool:
    return column == _COLUMNS[""] and key.rotated_at is not None and at <= key.rotated_at + _SETTLING


def _write(uses: dict[str, datetime]) -> None:
    if not uses:
        return
    with transaction.atomic():
        for name, at in uses.items():
            key_id, column = _split(name)
            # Two processes may store at once: the later use stays.
            older = Q(**{column: None}) | Q(**{f"{column}__lt": at})
            ApiKey.objects.filter(older, key_id=key_id).update(**{column: at})


@shared_task(name="controlplane.store_key_usage", ignore_result=True)
def store_key_usage() -> None:
    """Run every few seconds. The first run subscribes; later runs write the uses that are due."""
    intake().store(timezone.now())


@functools.cache
def intake() -> KeyUsageIntake:
    """Return the only KeyUsageIntake of this process."""
    return KeyUsageIntake(get_bus())
