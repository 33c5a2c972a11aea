"""Wakes jobs at once for a person who waits, because their schedule would take up to two seconds."""

from __future__ import annotations

from collections.abc import Iterable

from django.db import transaction

from controlplane.platform.bus import fleet_keyring, get_bus

TOPIC = "wake_jobs"
"""Told topic: names of jobs, separated by commas. Whoever keeps the schedule hears it."""


def job_queues(name: str) -> list[str]:
    """Return the broker's queues of this name: wake-ups go to the first, and workers read all.

    There is one per secret, so that processes before and after a step of a rotation wake each other's jobs.
    """
    return [f"{name}.{secret.derive('queues of jobs', 8).hex()}" for secret in fleet_keyring().every]


def wake(jobs: Iterable[str]) -> None:
    """Wake these jobs once the surrounding transaction is committed; one that is not heard waits for its schedule."""
    names = ",".join(jobs).encode()
    transaction.on_commit(lambda: get_bus().notify(TOPIC, names))
