"""Publishes changes that commands and other processes made in the database."""

from __future__ import annotations

from celery import shared_task

from controlplane.publication.snapshot import publish_if_newer


@shared_task(name="controlplane.refresh_snapshot", ignore_result=True)
def refresh_snapshot() -> None:
    """Publish the committed state if its version is newer than the version on the bus."""
    publish_if_newer()
