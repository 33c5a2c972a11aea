"""Finds nodes that have stopped reporting."""

from __future__ import annotations

from celery import shared_task
from django.utils import timezone

from controlplane.kv_nodes.silence import note_silent_nodes


@shared_task(name="controlplane.kv_node_silence", ignore_result=True)
def kv_node_silence() -> None:
    """Run every five seconds. No lease: each node is marked under a lock on its row, once."""
    note_silent_nodes(timezone.now())
