"""The leased job that stores decisions: observe what the bus brought, write it, keep the budget."""

from __future__ import annotations

import contextlib
import logging
from datetime import timedelta

from celery import shared_task
from django.db import DatabaseError

from controlplane.decision_store.intake import decoded
from controlplane.decision_store.keeper import DecisionKeeper
from controlplane.decision_store.storage import DecisionStorage, storage
from controlplane.jobs.lease import acquire, renew, this_owner

logger = logging.getLogger(__name__)

JOB = "decisions"
LEASE = timedelta(seconds=20)
"""Longer than any run; what a dead holder did not store waits in the other processes meanwhile."""
SHRINK_EVERY = 30
"""The budget is looked at once in so many runs that stored something."""


@shared_task(name="controlplane.store_decisions", ignore_result=True)
def store_decisions() -> None:
    """Run every second: the first run begins to listen, each later one stores what has come."""
    keep(storage())


def keep(storage: DecisionStorage) -> int:
    """Store what waits, where this process gets the lease, and return how many decisions were new."""
    intake, keeper = storage.intake, storage.keeper
    if not len(intake) and storage.recovered:
        return 0
    batches: list[bytes] = []
    try:
        lease = acquire(JOB, this_owner(), LEASE)
        if lease is None:
            intake.forget_old()
            return 0
        if not storage.recovered:
            keeper.recover()
            storage.recovered = True
        batches = intake.take()
        stored = keeper.store(decoded(batches))
        storage.stored += stored
        storage.runs += 1
        if storage.runs % SHRINK_EVERY == 1:
            keeper.shrink()
        # A lease of no length is a release that brings the progress along.
        renew(lease, timedelta(0), progress={"stored": storage.stored, "dropped_batches": intake.dropped})
    except (DatabaseError, OSError) as error:
        intake.give_back(batches)
        _shrink(keeper)
        logger.warning(
            "decisions cannot be stored now",
            extra={"error": type(error).__name__, "remedy": "free disk space or lower SWITCHYARD_DECISION_BYTES"},
        )
        return 0
    return stored


def _shrink(keeper: DecisionKeeper) -> None:
    """Keep the budget also where nothing can be stored: a disk that is full may be full of old segments."""
    with contextlib.suppress(DatabaseError, OSError):
        keeper.shrink()
