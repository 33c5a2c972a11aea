"""Stores what gateways counted of their shadows, ends those that are due, and has observing pools compared."""

from __future__ import annotations

import functools

from celery import shared_task
from django.utils import timezone

from controlplane.bus import get_bus
from controlplane.services.shadow_reports import ShadowIntake
from controlplane.services.shadows import end_due, observe_pools


@shared_task(name="controlplane.shadows", ignore_result=True)
def shadows() -> None:
    """Run every few seconds: the first run begins to listen, each later one writes what has come."""
    intake().store()
    end_due(timezone.now())
    observe_pools()


@functools.cache
def intake() -> ShadowIntake:
    """Return this process's one intake."""
    return ShadowIntake(get_bus())
