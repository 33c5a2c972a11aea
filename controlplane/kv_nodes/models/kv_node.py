"""One node manager, and its last report."""

from __future__ import annotations

from django.core.validators import MinValueValidator, RegexValidator
from django.db import models
from typing_extensions import override

from controlplane.fleet.models.engine import KV_NODE
from controlplane.platform.revisions import RevisedModel

_ADDRESS = r"^[A-Za-z0-9.:\[\]-]+:[0-9]{1,5}$"


class KvNodeState(models.TextChoices):
    """Whether gateways and engines may use a node."""

    SERVING = "serving", "Serving"
    DRAINING = "draining", "Draining"
    GONE = "gone", "Stopped"
    SILENT = "silent", "Silent"


EVICTION_CHOICES = (("leaf_lru", "Leaf-LRU"), ("rlt", "RLT"))
"""Rules of kvstore.tiers.eviction, with their titles."""
SSD_CHOICES = (("write_through", "All blocks"), ("peaks", "Pinned blocks and peaks"))
"""Policies of kvstore.node.write_through, with their titles."""
LIVE = (KvNodeState.SERVING, KvNodeState.DRAINING)
"""States in which a node is published."""


class KvNode(RevisedModel):
    """One node manager, which registers itself. `name` is its id everywhere."""

    public_id_field = "name"
    in_snapshot = True

    name = models.CharField(
        max_length=64, unique=True, validators=[RegexValidator(KV_NODE, "Use A-Z, a-z, 0-9, . _ -")]
    )
    incarnation = models.BigIntegerField(default=0, validators=[MinValueValidator(0)])
    """Nanoseconds since the epoch at its last start. Reports of an earlier start are ignored."""
    address = models.CharField(max_length=200, validators=[RegexValidator(_ADDRESS, "Write host:port.")])
    """Address for engines and gateways. It is checked by the same rules as engine addresses."""
    events_endpoint = models.CharField(max_length=200, blank=True)
    replay_endpoint = models.CharField(max_length=200, blank=True)
    metrics_url = models.CharField(max_length=200, blank=True)
    dram_bytes = models.BigIntegerField(default=0, validators=[MinValueValidator(0)])
    ssd_bytes = models.BigIntegerField(default=0, validators=[MinValueValidator(0)])
    slot_bytes = models.BigIntegerField(default=0, validators=[MinValueValidator(0)])
    eviction = models.CharField(max_length=32, blank=True, choices=EVICTION_CHOICES)
    """The rule that operators chose; empty: the node's own. The answer to its next report has it."""
    ssd_policy = models.CharField(max_length=32, blank=True, choices=SSD_CHOICES)
    """The SSD policy that operators chose; empty: the node's own."""
    state = models.CharField(max_length=16, choices=KvNodeState.choices, default=KvNodeState.GONE)

    class Meta:
        ordering = ("name",)
        constraints = (
            models.CheckConstraint(condition=models.Q(state__in=KvNodeState.values), name="kv_node_state_known"),
        )


class KvNodeReport(models.Model):
    """A node's last report: frequently changing counters, separate from the published and audited fields."""

    node = models.OneToOneField(KvNode, on_delete=models.CASCADE, related_name="report")
    received_at = models.DateTimeField()
    """Time of receipt on this server's clock."""
    content = models.JSONField(default=dict)
    """kvstore.node.node_report.NodeReport as JSON, validated before it was stored."""
    earlier = models.JSONField(default=list)
    """Counters of the last reports before this one since the node's start, oldest first, with their times; for rates
    over about ten seconds."""
    unpin = models.JSONField(default=list)
    """Pins (name, tenant) that operators have ended. Responses to the node list them until its report omits them."""

    @override
    def __str__(self) -> str:
        return f"{self.node} at {self.received_at:%H:%M:%S}"
