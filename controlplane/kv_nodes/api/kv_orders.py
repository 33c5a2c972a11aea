"""`/api/v1/kv_orders`."""

from __future__ import annotations

from typing import get_args

from controlplane.kv_nodes.models.kv_order import KvOrder
from controlplane.kv_nodes.orders import visible_kv_orders
from controlplane.platform.api.listing import Listing, exact, moment, one_of
from controlplane.platform.api.strict_fields import ModelShape
from controlplane.platform.api.views import Listed
from gateway.contracts.kv_order import Ending


class KvOrderShape(ModelShape):
    """One order, what it moved, and what that was worth."""

    class Meta:
        model = KvOrder
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


class KvOrders(Listed):
    """List orders."""

    noun = "KV nodes"
    shape = KvOrderShape
    rows = staticmethod(visible_kv_orders)
    whole_fleet = True
    listing = Listing(
        {"asked_at": ("asked_at", "pk")},
        "-asked_at",
        {
            "planner": one_of("planner", ("prefetch", "advisory", "replicate", "shrink"), "Who asked."),
            "outcome": one_of("outcome", get_args(Ending), "How it ended."),
            "worth": one_of("worth", ("open", "none", "useful", "useless"), "What its copy was worth."),
            "source": exact("source", "Name of the node that the blocks came from."),
            "target": exact("target", "Name of the node that they went to."),
            "pool_id": exact("pool_id", "The pool whose requests they are for."),
            "after": moment("asked_at__gte", "Asked then or later."),
        },
    )
