"""Wakes jobs at once for a waiting person, because their schedule would take up to two seconds."""

from __future__ import annotations

from collections.abc import Iterable

from django.db import transaction

from controlplane.platform.bus import fleet_keyring, get_bus

TOPIC = "wake_jobs"
"""Stream topic: names of jobs, separated by commas. Processes that keep the schedule subscribe to it."""


def job_queues(name: str) -> list[str]:
    """Return the broker's queues of this name: wake-ups are sent to the first, and workers read all.

    Each secret has one, so that processes before and after a step of a rotation wake each other's jobs.
    """
    return [f"{name}.{secret.derive('queues of jobs', 8).hex()}" for secret in fleet_keyring().every]


def wake(jobs: Iterable[str]) -> None:
    """Wake these jobs once the surrounding transaction is committed; if the message is lost, they run on schedule."""
    names = ",".join(jobs).encode()
    # Before the commit, the job would not see the change for which it is woken.
    transaction.on_commit(lambda: get_bus().notify(TOPIC, names))
