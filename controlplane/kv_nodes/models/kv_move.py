"""One order that moved KV blocks between nodes."""

from __future__ import annotations

from django.db import models
from typing_extensions import override


class KvMoveRecord(models.Model):
    """Last report of the gateway that requested the move (gateway.contracts.kv_move).

    It is not audited, and no decision uses it.
    """

    public_id_field = "order_id"

    order_id = models.CharField(max_length=64, unique=True)
    asked_at = models.DateTimeField(db_index=True)
    pool_id = models.CharField(max_length=128)
    planner = models.CharField(max_length=32)
    source = models.CharField(max_length=64)
    """Name of the node from which the blocks were moved."""
    target = models.CharField(max_length=64)
    asked_blocks = models.BigIntegerField(default=0)
    blocks = models.BigIntegerField(default=0)
    bytes = models.BigIntegerField(default=0)
    seconds = models.FloatField(default=0.0)
    outcome = models.CharField(max_length=16)
    loads = models.BigIntegerField(default=0)
    saved_tokens = models.BigIntegerField(default=0)
    worth = models.CharField(max_length=16)

    class Meta:
        ordering = ("-asked_at", "-id")

    @override
    def __str__(self) -> str:
        return f"{self.planner} {self.source} → {self.target}"
