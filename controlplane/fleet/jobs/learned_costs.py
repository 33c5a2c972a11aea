"""Stores what gateways learned about the costs of their engines."""

from __future__ import annotations

import functools

from celery import shared_task
from django.utils import timezone

from controlplane.fleet.learned_costs import CostIntake
from controlplane.platform.bus import get_bus


@shared_task(name="controlplane.store_learned_costs", ignore_result=True)
def store_learned_costs() -> None:
    """Run every few seconds: the first run begins to listen, each later one writes what has moved."""
    intake().store(timezone.now())


@functools.cache
def intake() -> CostIntake:
    """Return this process's one intake."""
    return CostIntake(get_bus())
