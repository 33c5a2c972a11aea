"""The KV store page; `?fragment` its changing part alone."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from controlplane.fleet.models.engine import Engine
from controlplane.kv_nodes.orders import visible_kv_orders
from controlplane.kv_nodes.simulated_scale import BYTES_PER_TOKEN, RATIO
from controlplane.kv_nodes.visibility import visible_kv_nodes
from controlplane.platform.role import Role
from controlplane.platform.roles import may
from web.kv_nodes.finding import finding
from web.kv_nodes.node_rows import NodeRow, node_row
from web.kv_nodes.order_rows import order_table
from web.kv_nodes.transfer_matrix import transfer_matrix
from web.shell.console_request import console_actor
from web.shell.frame import shell_context

ADDRESS = "/kv"
PAGE = "KV store"
MAX_ROWS = 200


@require_safe
def kv_store(request: HttpRequest) -> HttpResponse:
    """Show every node manager to whoever has a role everywhere."""
    actor, now = console_actor(request), timezone.now()
    if not may(actor, Role.VIEWER):
        why = "KV nodes belong to no pool; seeing them requires a role in all pools. Ask an admin."
        return render(request, "kv_nodes/refused.html", shell_context(request, page=PAGE, why=why), status=403)
    nodes = visible_kv_nodes(actor).order_by("name")
    rows: list[NodeRow] = [node_row(node, now) for node in nodes[:MAX_ROWS]]
    engines = Engine.objects.exclude(kv_node="").values_list("name", "connect_url", "kv_node", "supervised")
    simulated = False
    by_node: dict[str, list[str]] = {}
    names = {}
    for name, url, node, supervised in engines:
        simulated = simulated or supervised
        by_node.setdefault(node, []).append(name)
        names[url.partition("://")[2]] = name
    names |= {row.name: row.name for row in rows}
    context = shell_context(
        request,
        page=PAGE,
        rows=[(row, sorted(by_node.get(row.name, ()))) for row in rows],
        more=max(0, nodes.count() - len(rows)),
        matrix=transfer_matrix(rows, names),
        orders=order_table(visible_kv_orders(actor), now),
        finding=finding(rows),
        scale=(BYTES_PER_TOKEN, RATIO) if simulated else None,
        fragment=f"{ADDRESS}?fragment=1",
    )
    part = "kv_nodes/live.html" if "fragment" in request.GET else "kv_nodes/page.html"
    return render(request, part, context)
