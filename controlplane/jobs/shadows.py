"""Stores what gateways counted of their shadows, and ends those that are due."""

from __future__ import annotations

import functools

from celery import shared_task
from django.utils import timezone

from controlplane.bus import get_bus
from controlplane.services.shadow_reports import ShadowIntake
from controlplane.services.shadows import end_due


@shared_task(name="controlplane.shadows", ignore_result=True)
def shadows() -> None:
    """Run every few seconds: the first run begins to listen, each later one writes what has come."""
    intake().store()
    end_due(timezone.now())


@functools.cache
def intake() -> ShadowIntake:
    """Return this process's one intake."""
    return ShadowIntake(get_bus())
