"""Wakes jobs immediately for a waiting person, because their schedule takes up to two seconds."""

from __future__ import annotations

from collections.abc import Iterable

from django.db import transaction

from controlplane.platform.bus import fleet_keyring, get_bus
from gateway.contracts.unserved_requests import WAKE_JOBS as TOPIC


def job_queues(name: str) -> list[str]:
    """Return the broker's queues with this name. Wake-ups are sent to the first queue, and workers read all of them.

    Each secret has one queue, so that processes before and after a rotation step can wake each other's jobs.
    """
    return [f"{name}.{secret.derive('queues of jobs', 8).hex()}" for secret in fleet_keyring().every]


def wake(jobs: Iterable[str]) -> None:
    """Wake these jobs after the surrounding transaction commits. If the message is lost, they run on schedule."""
    names = ",".join(jobs).encode()
    # Before the commit, the job would not see the change for which it is woken.
    transaction.on_commit(lambda: get_bus().notify(TOPIC, names))


def wake_now(jobs: Iterable[str]) -> None:
    """Wake these jobs for a change outside the database. Callable from any thread."""
    get_bus().notify(TOPIC, ",".join(jobs).encode())
