"""Stores when API keys were used last."""

from __future__ import annotations

import functools

from celery import shared_task
from django.utils import timezone

from controlplane.access.key_usage import KeyUsageIntake
from controlplane.platform.bus import get_bus


@shared_task(name="controlplane.store_key_usage", ignore_result=True)
def store_key_usage() -> None:
    """Run every few seconds: the first run begins to listen, each later one writes what is due."""
    intake().store(timezone.now())


@functools.cache
def intake() -> KeyUsageIntake:
    """Return this process's one intake."""
    return KeyUsageIntake(get_bus())
