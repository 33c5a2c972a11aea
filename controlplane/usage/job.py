"""The leased job of the ledger: applies usage, publishes marks and grants, and counts engine hours."""

from __future__ import annotations

import functools
import logging
import time
from dataclasses import dataclass
from datetime import datetime, timedelta

from celery import shared_task
from django.db import DatabaseError, transaction
from django.db.models import Count, F, Q, Sum
from django.utils import timezone

from controlplane.fleet.models.engine import DesiredState, Engine
from controlplane.platform.bus import get_bus
from controlplane.platform.jobs.lease import acquire, release, this_owner
from controlplane.platform.stream_intake import StreamIntake
from controlplane.usage.applying import apply_batches
from controlplane.usage.models.usage_rows import EngineDay, UsageMinute
from gateway.bus.bus import Bus
from gateway.contracts.wire import UnreadableMessageError
from gateway.usage.usage_messages import ENTRIES_TOPIC, STATE_TOPIC, decode_state, encode_state

logger = logging.getLogger(__name__)

JOB = "usage"
LEASE = timedelta(seconds=20)
MOST_BATCHES = 64
KEEP_MINUTES = timedelta(days=3)
ENGINES_EVERY_S = 30.0
"""Interval at which engine hours are counted."""
LONGEST_STEP = timedelta(minutes=10)
"""Limit of what one step adds to engine hours. Longer pauses of Headway are not counted."""


@dataclass(slots=True)
class UsageIntake:
    """Batches that this process has received. Mutable: when engine hours were counted (monotonic seconds)."""

    received: StreamIntake
    engines_at_s: float = float("-inf")


@functools.cache
def usage_intake() -> UsageIntake:
    """Return this process's UsageIntake, which is subscribed to the bus from the first call."""
    return UsageIntake(StreamIntake(get_bus(), ENTRIES_TOPIC))


@shared_task(name="controlplane.store_usage", ignore_result=True)
def store_usage() -> None:
    """Run every second. The first run subscribes; later runs apply the received batches."""
    keep(usage_intake(), get_bus(), timezone.now())


def keep(intake: UsageIntake, bus: Bus, now: datetime) -> int:
    """Apply waiting batches, if this process gets the lease. Return their number.

    A batch that is lost, here or on the bus, is sent again by its gateway.
    """
    received = intake.received
    if not len(received):
        return 0
    values: list[bytes] = []
    try:
        lease = acquire(JOB, this_owner(), LEASE)
        if lease is None:
            received.forget_old()
            return 0
        values = received.take(MOST_BATCHES)
        state = apply_batches(values, now, max(int(now.timestamp() * 1000), _published(bus) + 1))
        # After the commit: a gateway deletes what its mark covers.
        bus.publish(STATE_TOPIC, encode_state(state))
        if time.monotonic() - intake.engines_at_s >= ENGINES_EVERY_S:
            intake.engines_at_s = time.monotonic()
            count_engines(now)
            UsageMinute.objects.filter(minute__lt=now - KEEP_MINUTES).delete()
        release(lease, progress={"journals": len(state.marks), "budgets": len(state.budgets)})
    except DatabaseError as error:
        received.give_back(values)
        logger.warning("usage cannot be stored now; gateways keep it", extra={"error": type(error).__name__})
        return 0
    return len(values)


def _published(bus: Bus) -> int:
    """Return the version of the state on the bus, 0 if there is none."""
    value = bus.latest(STATE_TOPIC)
    try:
        return decode_state(value).version if value is not None else 0
    except UnreadableMessageError:
        return 0


def count_engines(now: datetime) -> None:
    """Add the time since the last call to the hours and the cost of each pool's serving engines."""
    priced = Q(cost_per_hour__isnull=False)
    serving = Engine.objects.filter(desired_state__in=(DesiredState.READY, DesiredState.DRAINING))
    pools = serving.values("pool__slug", "pool__served_model").annotate(
        engines=Count("pk"), priced=Count("pk", filter=priced), cost=Sum("cost_per_hour")
    )
    with transaction.atomic():
        last = {
            (row.pool, row.model): row.counted_to
            for row in EngineDay.objects.filter(day__gte=(now - timedelta(days=1)).date()).order_by("counted_to")
        }
        for row in pools.order_by():
            pool, model = row["pool__slug"], row["pool__served_model"]
            step = min(max(now - last.get((pool, model), now), timedelta()), LONGEST_STEP).total_seconds()
            day, _ = EngineDay.objects.get_or_create(
                day=now.date(), pool=pool, model=model, defaults={"counted_to": now}
            )
            EngineDay.objects.filter(pk=day.pk).update(
                engine_s=F("engine_s") + step * row["engines"],
                priced_s=F("priced_s") + step * row["priced"],
                cost=F("cost") + step / 3600 * (row["cost"] or 0.0),
                counted_to=now,
            )
