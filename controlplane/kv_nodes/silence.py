"""Marks nodes that missed three reports as silent. Gateways and engines do not use them until they report again."""

from __future__ import annotations

from datetime import datetime, timedelta

from celery import shared_task
from django.db import transaction
from django.utils import timezone

from controlplane.kv_nodes.models.kv_node import LIVE, KvNode, KvNodeState
from controlplane.platform import recorded_change
from controlplane.platform.actor import program
from kvstore.node.node_report import REPORT_EVERY_S

SILENT_AFTER = timedelta(seconds=3 * REPORT_EVERY_S)
ACTOR = program("KV nodes")


def note_silent_nodes(now: datetime) -> list[str]:
    """Mark the nodes that are silent at `now` and return their names. Idempotent."""
    late = {"state__in": LIVE, "report__received_at__lt": now - SILENT_AFTER}
    names = []
    for node in KvNode.objects.filter(**late):
        with transaction.atomic():
            # It may have reported since.
            locked = KvNode.objects.select_for_update(of=("self",)).filter(pk=node.pk, **late).first()
            if locked is None:
                continue
            recorded_change.change(locked, {"state": KvNodeState.SILENT}, "kv_node.silent", actor=ACTOR)
            names.append(node.name)
    return names


@shared_task(name="controlplane.kv_node_silence", ignore_result=True)
def kv_node_silence() -> None:
    """Run every five seconds. It needs no lease, because each node is marked once, under a lock on its row."""
    note_silent_nodes(timezone.now())
