"""Wakes jobs at once for a person who waits, because their schedule would take up to two seconds."""

from __future__ import annotations

from collections.abc import Iterable

from django.db import transaction

from controlplane.platform.bus import get_bus

TOPIC = "wake_jobs"
"""Told topic: names of jobs, separated by commas. Whoever keeps the schedule hears it."""


def wake(jobs: Iterable[str]) -> None:
    """Wake these jobs once the surrounding transaction is committed; one that is not heard waits for its schedule."""
    names = ",".join(jobs).encode()
    transaction.on_commit(lambda: get_bus().tell(TOPIC, names))
