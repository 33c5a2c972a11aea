"""Stores the reports that node managers send every few seconds.

Most reports are stored but not published. The published fields (address, sizes, state) change, with an audit event,
only when a node joins, moves, drains, or leaves.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from django.db import transaction
from django.db.models import QuerySet

from controlplane.fleet.engine_addressing import engine_url_rules
from controlplane.fleet.engine_url import RejectedUrlError, check_kv_endpoint, check_metrics_url
from controlplane.kv_nodes.models.kv_node import LIVE, KvNode, KvNodeReport, KvNodeState
from controlplane.kv_nodes.unpinning import pin_of
from controlplane.platform import recorded_change
from controlplane.platform.actor import Actor
from controlplane.platform.audit_values import fields_but
from controlplane.platform.conflict import ConflictError
from controlplane.platform.field_problems import check_names, problem
from controlplane.platform.recorded_change import InUseError
from controlplane.platform.role import Role
from controlplane.platform.roles import may, require
from kvstore.node.node_report import NodeReport
from routing.values.prepared_struct import prepared

MAX_NODES = 1024
CHOSEN_FIELDS = ("eviction", "ssd_policy")
"""Fields that operators choose. All others come from the node."""
NODE_FIELDS = fields_but(KvNode, "name", *CHOSEN_FIELDS)


class OlderIncarnationError(ConflictError):
    """The node has restarted, so reports of its earlier incarnation are ignored."""


def report_node(name: str, fields: dict[str, Any], report: dict[str, Any], *, now: datetime, actor: Actor) -> KvNode:
    """Store a node's report about itself and return the node with its new state. Idempotent.

    Raises NotAllowedError, RejectedUrlError, InvalidFieldsError, OlderIncarnationError.
    """
    require(actor, Role.OPERATOR)
    check_names(fields, NODE_FIELDS)
    content = _checked_report(report)
    # Before the transaction, which would hold its lock while the names are resolved.
    changes = {**fields, **_checked_addresses(fields)}
    with transaction.atomic():
        node = KvNode.objects.select_for_update().filter(name=name).first()
        if node is None:
            if KvNode.objects.count() >= MAX_NODES:
                raise problem("name", f"There are {MAX_NODES} KV nodes already; delete nodes that no longer exist.")
            node = recorded_change.create(KvNode(name=name, **changes), "kv_node.register", actor=actor)
        # A delayed report of the process before the restart.
        elif fields["incarnation"] < node.incarnation:
            raise OlderIncarnationError(f"KV node {name} has restarted since; this report is of its predecessor.")
        else:
            node = recorded_change.change(node, changes, _verb(node, changes), actor=actor)
        node.report = _stored(node, now, content)
    return node


def _stored(node: KvNode, now: datetime, content: dict[str, Any]) -> KvNodeReport:
    """Store a report, and drop requests to end pins that the report no longer lists."""
    left = {pin_of(item) for item in content["pins"]}
    old = KvNodeReport.objects.filter(node=node).first()
    unpin = [item for item in old.unpin if pin_of(item) in left] if old is not None else []
    values = {"received_at": now, "content": content, "unpin": unpin, "earlier": _earlier(old, content)}
    stored, _ = KvNodeReport.objects.update_or_create(node=node, defaults=values)
    return stored


def _earlier(old: KvNodeReport | None, content: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the counters of the last two reports; none after a restart, which resets them."""
    if old is None or content["stored"] < old.content.get("stored", 0):
        return []
    counters = {name: old.content.get(name, []) for name in ("tiers", "links", "misses", "stored")}
    return [*old.earlier, {"at": old.received_at.timestamp(), "counters": counters}][-2:]


def _verb(node: KvNode, changes: dict[str, Any]) -> str:
    came_back = node.state not in (KvNodeState.SERVING, KvNodeState.DRAINING)
    return "kv_node.register" if came_back or changes["incarnation"] != node.incarnation else "kv_node.change"


def _checked_addresses(fields: dict[str, Any]) -> dict[str, str]:
    rules = engine_url_rules()
    checked: dict[str, str] = {}
    for field in ("address", "events_endpoint", "replay_endpoint", "metrics_url"):
        given = fields.get(field, "")
        if not given:
            continue
        scheme = "tcp://" if field == "address" else ""
        try:
            if field == "metrics_url":
                checked[field] = check_metrics_url(given, rules).url
            else:
                endpoint = check_kv_endpoint(scheme + given, rules)
                # Transfers use the name, which the node's certificate must show; events use the checked address.
                checked[field] = endpoint.url.removeprefix(scheme) if scheme else endpoint.connect_url
        except RejectedUrlError as error:
            error.field = field
            raise
    return checked


def _checked_report(report: dict[str, Any]) -> dict[str, Any]:
    try:
        return dict(msgspec.to_builtins(msgspec.convert(report, prepared(NodeReport))))
    except msgspec.ValidationError as error:
        raise problem("report", f"{error}.") from error


def delete_kv_node(node: KvNode, *, actor: Actor, expected: int | None = None, why: str = "") -> None:
    """Delete a node that has left or is silent.

    Raises NotAllowedError, StaleRevisionError, and InUseError if the node still reports, because it would register
    again.
    """
    require(actor, Role.OPERATOR)
    if node.state in LIVE:
        raise InUseError(f"KV node {node} is {node.get_state_display().lower()}; stop it first.")
    recorded_change.delete(node, "kv_node.delete", actor=actor, expected=expected, why=why)


def choose_rules(node: KvNode, *, actor: Actor, expected: int | None = None, why: str = "", **chosen: str) -> KvNode:
    """Choose a node's eviction rule and SSD policy (CHOSEN_FIELDS), which it applies with its next report.

    Empty: as the node was started. Raises NotAllowedError, StaleRevisionError, InvalidFieldsError.
    """
    require(actor, Role.OPERATOR)
    check_names(chosen, CHOSEN_FIELDS)
    return recorded_change.change(node, chosen, "kv_node.rules", actor=actor, expected=expected, why=why)


def visible_kv_nodes(actor: Actor) -> QuerySet[KvNode]:
    """Return the nodes that the actor may see, with their reports."""
    nodes = KvNode.objects.select_related("report")
    return nodes if may(actor, Role.VIEWER) else nodes.none()
