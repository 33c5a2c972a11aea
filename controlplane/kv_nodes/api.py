"""`/api/v1/kv_nodes` and `/api/v1/kv_moves`."""

from __future__ import annotations

from typing import get_args

from django.utils import timezone
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.fleet.engine_addressing import engine_url_rules
from controlplane.fleet.engine_url import is_allowed_metrics_url
from controlplane.fleet.models.pool import Pool
from controlplane.fleet.visibility import visible_pools
from controlplane.kv_nodes.copies import set_copies
from controlplane.kv_nodes.models.kv_move import KvMoveRecord
from controlplane.kv_nodes.models.kv_node import EVICTION_CHOICES, SSD_CHOICES, KvNode, KvNodeState
from controlplane.kv_nodes.moves import visible_kv_moves
from controlplane.kv_nodes.registration import choose_rules, delete_kv_node, report_node, visible_kv_nodes
from controlplane.kv_nodes.unpinning import unpin
from controlplane.platform.api.listing import Listing, contains, exact, moment, one_of
from controlplane.platform.api.strict_fields import ChangeBody, Document, Input, ModelShape, Text, WholeNumber
from controlplane.platform.api.views import Deletable, Listed, Objects, Verb, by_method
from gateway.contracts.kv_move import MAX_COPIES, Ending

_MAX = (1 << 63) - 1


class KvNodeShape(ModelShape):
    """One node manager."""

    eviction = serializers.CharField(read_only=True, help_text="leaf_lru or rlt; empty: as it was started.")
    ssd_policy = serializers.CharField(read_only=True, help_text="write_through or peaks; empty: as it was started.")
    received_at = serializers.DateTimeField(source="report.received_at", read_only=True, allow_null=True, default=None)
    report = serializers.DictField(source="report.content", read_only=True, default=dict)
    metrics_url = serializers.SerializerMethodField()
    unpin = serializers.ListField(
        source="report.unpin",
        child=serializers.DictField(child=serializers.CharField()),
        read_only=True,
        default=list,
        help_text="Pins that operators have ended but the node still reports.",
    )

    class Meta:
        model = KvNode
        fields = (
            "name",
            "incarnation",
            "address",
            "events_endpoint",
            "replay_endpoint",
            "metrics_url",
            "dram_bytes",
            "ssd_bytes",
            "slot_bytes",
            "eviction",
            "ssd_policy",
            "state",
            "received_at",
            "report",
            "unpin",
            "revision",
        )

    def get_metrics_url(self, node: KvNode) -> str:
        """Return the address; empty if it is not allowed under the current rules."""
        return node.metrics_url if is_allowed_metrics_url(node.metrics_url, engine_url_rules()) else ""


class KvNodeWord(Input):
    """A node manager's report about itself, sent every few seconds."""

    name = Text(max_length=64, help_text="Its id; never changes.")
    incarnation = WholeNumber(min_value=0, max_value=_MAX, help_text="Increases with each start.")
    address = Text(help_text="host:port under which engines and gateways reach it.")
    events_endpoint = Text(allow_blank=True, default="", help_text="tcp://host:port of its KV events.")
    replay_endpoint = Text(allow_blank=True, default="", help_text="tcp://host:port of the event replay.")
    metrics_url = Text(allow_blank=True, default="", help_text="URL of its Prometheus metrics.")
    dram_bytes = WholeNumber(min_value=0, max_value=_MAX, default=0, help_text="Size of its DRAM tier (bytes).")
    ssd_bytes = WholeNumber(min_value=0, max_value=_MAX, default=0, help_text="Size of its SSD tier (bytes).")
    slot_bytes = WholeNumber(min_value=0, max_value=_MAX, default=0, help_text="Largest block (bytes).")
    state = serializers.ChoiceField(
        choices=[KvNodeState.SERVING.value, KvNodeState.DRAINING.value, KvNodeState.GONE.value],
        default=KvNodeState.SERVING.value,
    )
    report = Document(required=False, default=dict, help_text="Its counters since it started.")


class KvPinName(ChangeBody):
    """Name of the pin in the node's report."""

    name = Text(max_length=64, help_text="`name` of the pin in `report.pins`.")
    tenant = Text(max_length=64, allow_blank=True, help_text="`tenant` of the pin.")


class KvNodeRules(ChangeBody):
    """Rules for a running node. Empty: as it was started."""

    eviction = serializers.ChoiceField(
        choices=EVICTION_CHOICES, allow_blank=True, required=False, help_text="Which block it evicts first."
    )
    ssd_policy = serializers.ChoiceField(
        choices=SSD_CHOICES,
        allow_blank=True,
        required=False,
        help_text="Blocks that it copies to SSD: all, or those pinned and those that arrive while DRAM is nearly full.",
    )


class _Nodes(Objects):
    noun = "KV nodes"
    shape = KvNodeShape
    rows = staticmethod(visible_kv_nodes)
    whole_fleet = True


class KvNodesView(_Nodes, Listed):
    """List node managers."""

    bodies = by_method(POST=KvNodeWord)
    answers = by_method(POST=(200, KvNodeShape))
    has_etag = True
    listing = Listing(
        {"name": ("name",)},
        "name",
        {"state": one_of("state", KvNodeState.values, "State."), "name": contains("name", "Part of the name.")},
    )

    def post(self, request: Request) -> Response:
        """Register a node manager, or report that it is alive. Repeat the request every few seconds."""
        body = self.body()
        name, report = body.pop("name"), body.pop("report")
        return self.show(report_node(name, body, report, now=timezone.now(), actor=self.actor))


class OneKvNode(_Nodes, Deletable):
    """One node manager."""

    deleted = staticmethod(delete_kv_node)


class KvNodeUnpin(_Nodes, Verb):
    """End a pin, so that the prefix can be evicted like any other. The node receives this with its next report."""

    verb = staticmethod(unpin)
    bodies = by_method(POST=KvPinName)


class KvNodeRulesView(_Nodes, Verb):
    """Choose a node's eviction rule and SSD policy. The node receives them with its next report."""

    verb = staticmethod(choose_rules)
    bodies = by_method(POST=KvNodeRules)


class KvCopiesOrder(ChangeBody):
    """The wanted copies of one prefix."""

    prefix = Text(max_length=16, help_text="Key of the prefix's last block, as in cache_locality.")
    copies = WholeNumber(min_value=1, max_value=MAX_COPIES, help_text="Number of nodes that are to hold it.")


class KvCopiesShape(ModelShape):
    """The pool whose gateway receives the order."""

    class Meta:
        model = Pool
        fields = ("slug",)


class PoolKvCopies(Verb):
    """Change the number of nodes that hold a prefix of the pool's recent prompts. `kv_moves` lists the moves."""

    noun = "pools"
    shape = KvCopiesShape
    rows = staticmethod(visible_pools)
    bodies = by_method(POST=KvCopiesOrder)
    verb = staticmethod(set_copies)


class KvMoveShape(ModelShape):
    """One order: the blocks that it moved, and the benefit."""

    class Meta:
        model = KvMoveRecord
        fields = (
            "order_id",
            "asked_at",
            "pool_id",
            "planner",
            "source",
            "target",
            "asked_blocks",
            "blocks",
            "bytes",
            "seconds",
            "outcome",
            "loads",
            "saved_tokens",
            "worth",
        )


class KvMovesView(Listed):
    """List orders."""

    noun = "KV nodes"
    shape = KvMoveShape
    rows = staticmethod(visible_kv_moves)
    whole_fleet = True
    listing = Listing(
        {"asked_at": ("asked_at", "pk")},
        "-asked_at",
        {
            "planner": one_of("planner", ("prefetch", "advisory", "replicate", "shrink"), "Planner that requested it."),
            "outcome": one_of("outcome", get_args(Ending), "Outcome."),
            "worth": one_of("worth", ("open", "none", "useful", "useless"), "Benefit of its copy."),
            "source": exact("source", "Name of the source node."),
            "target": exact("target", "Name of the target node."),
            "pool_id": exact("pool_id", "Pool whose requests use the blocks."),
            "after": moment("asked_at__gte", "Requested at this time or later."),
        },
    )
