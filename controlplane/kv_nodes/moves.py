"""Stores gateways' reports on orders that moved KV blocks. Keeps the newest MAX_KEPT orders."""

from __future__ import annotations

import functools
import logging
from datetime import UTC, datetime

from celery import shared_task
from django.db import DatabaseError, transaction
from django.db.models import QuerySet

from controlplane.kv_nodes.models.kv_move import KvMoveRecord
from controlplane.platform.actor import Actor
from controlplane.platform.audit_values import fields_but
from controlplane.platform.bus import get_bus
from controlplane.platform.role import Role
from controlplane.platform.roles import may
from controlplane.platform.stream_intake import StreamIntake
from gateway.contracts.kv_move import TOPIC, KvMoveRow, decode_orders
from gateway.contracts.wire import UnreadableMessageError

logger = logging.getLogger(__name__)

MAX_KEPT = 10_000
_MOST_MESSAGES = 64
_REPORTED = sorted(fields_but(KvMoveRecord, "order_id", "asked_at"))


def visible_kv_moves(actor: Actor) -> QuerySet[KvMoveRecord]:
    """Return the orders that the actor may see. Like nodes, orders belong to no single pool."""
    return KvMoveRecord.objects.all() if may(actor, Role.VIEWER) else KvMoveRecord.objects.none()


def keep_orders(intake: StreamIntake) -> int:
    """Store the received reports and return how many orders they contain. If the database fails, keep all reports."""
    values = intake.take(_MOST_MESSAGES)
    newest: dict[str, KvMoveRow] = {}
    for value in values:
        try:
            newest |= {row.order_id: row for row in decode_orders(value)}
        except UnreadableMessageError as error:
            logger.warning("rows of KV orders cannot be read", extra={"reason": str(error)})
    try:
        _store(list(newest.values()))
    except DatabaseError:
        # Kept for the next run.
        intake.give_back(values)
        raise
    return len(newest)


def _store(rows: list[KvMoveRow]) -> None:
    if not rows:
        return
    orders = [
        KvMoveRecord(
            order_id=row.order_id,
            asked_at=datetime.fromtimestamp(row.asked_at, UTC),
            **{name: getattr(row, name) for name in _REPORTED},
        )
        for row in rows
    ]
    with transaction.atomic():
        # A gateway reports an order again as its copy is used or dropped; the last report counts.
        KvMoveRecord.objects.bulk_create(
            orders, update_conflicts=True, unique_fields=["order_id"], update_fields=_REPORTED
        )
        last_kept = KvMoveRecord.objects.order_by("-pk").values_list("pk", flat=True)[MAX_KEPT - 1 : MAX_KEPT].first()
        if last_kept is not None:
            KvMoveRecord.objects.filter(pk__lt=last_kept).delete()


@shared_task(name="controlplane.kv_moves", ignore_result=True)
def kv_moves() -> None:
    """Run every two seconds. The first run subscribes; later runs store the received reports.

    It needs no lease: every process receives the same reports, and storing a row twice has no effect.
    """
    keep_orders(intake())


@functools.cache
def intake() -> StreamIntake:
    """Return the only StreamIntake of KV orders in this process."""
    return StreamIntake(get_bus(), TOPIC)
