"""Stores gateways' shadow counts, ends shadows that are due, and starts comparisons for observing pools."""

from __future__ import annotations

import functools

from celery import shared_task
from django.utils import timezone

from controlplane.platform.bus import get_bus
from controlplane.trials.shadow.lifecycle import end_due, observe_pools
from controlplane.trials.shadow.reports import ShadowIntake


@shared_task(name="controlplane.shadows", ignore_result=True)
def shadows() -> None:
    """Run every few seconds. The first run subscribes; later runs store the received counts."""
    intake().store()
    end_due(timezone.now())
    observe_pools()


@functools.cache
def intake() -> ShadowIntake:
    """Return the only ShadowIntake of this process."""
    return ShadowIntake(get_bus())
