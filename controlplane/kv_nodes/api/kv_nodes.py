"""`/api/v1/kv_nodes`."""

from __future__ import annotations

from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.kv_nodes.api.kv_node_shape import KvNodeShape, KvNodeWord, KvPinName
from controlplane.kv_nodes.models.kv_node import KvNodeState
from controlplane.kv_nodes.registration import report_node
from controlplane.kv_nodes.removal import delete_kv_node
from controlplane.kv_nodes.unpinning import unpin
from controlplane.kv_nodes.visibility import visible_kv_nodes
from controlplane.platform.api.base import ApiView, by_method, taken_why
from controlplane.platform.api.changeable_object import Deletable
from controlplane.platform.api.filters import contains, one_of
from controlplane.platform.api.listing import Listing


class KvNodes(ApiView):
    """All node managers, and what they say of themselves."""

    noun = "KV nodes"
    shape = KvNodeShape
    bodies = by_method(POST=KvNodeWord)
    answers = by_method(POST=(200, KvNodeShape))
    whole_fleet = True
    has_etag = True
    listing = Listing(
        {"name": ("name",)},
        "name",
        {"state": one_of("state", KvNodeState.values, "State."), "name": contains("name", "Part of the name.")},
    )

    def get(self, request: Request) -> Response:
        """List node managers."""
        return self.show_page(visible_kv_nodes(self.actor))

    def post(self, request: Request) -> Response:
        """Register a node manager, or report that it is still there; repeat it every few seconds."""
        body = self.body()
        name, report = body.pop("name"), body.pop("report")
        return self.show(report_node(name, body, report, now=timezone.now(), actor=self.actor))


class OneKvNode(Deletable):
    """One node manager."""

    noun = "KV nodes"
    shape = KvNodeShape
    whole_fleet = True
    rows = staticmethod(visible_kv_nodes)
    deleted = staticmethod(delete_kv_node)
    answers = by_method(DELETE=(204, None))


class KvNodeUnpin(ApiView):
    """The end of a pin."""

    noun = "KV nodes"
    shape = KvNodeShape
    bodies = by_method(POST=KvPinName)
    whole_fleet = True

    def post(self, request: Request, *, name: str) -> Response:
        """Have a node keep a pinned prefix no longer than others; it hears of it with its next report."""
        node, body = visible_kv_nodes(self.actor).get(name=name), self.body()
        why = taken_why(body)
        return self.show(unpin(node, body["name"], body["tenant"], actor=self.actor, why=why))
