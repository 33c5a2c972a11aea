"""Resolves the host names of engines again and publishes those that moved."""

from __future__ import annotations

from celery import shared_task

from controlplane.fleet.engine_addresses import follow_addresses


@shared_task(name="controlplane.engine_addresses", ignore_result=True)
def engine_addresses() -> None:
    """Run every ten seconds. No lease: a move is made against the engine's revision, once."""
    follow_addresses()
