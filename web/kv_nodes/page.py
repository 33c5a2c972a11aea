"""The KV store page; with `?fragment` only the live section."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import Pool
from controlplane.fleet.visibility import visible_pools
from controlplane.kv_nodes.advisory_tallies import advised
from controlplane.kv_nodes.copies import set_copies
from controlplane.kv_nodes.models.kv_node import EVICTION_CHOICES, SSD_CHOICES
from controlplane.kv_nodes.moves import visible_kv_moves
from controlplane.kv_nodes.registration import CHOSEN_FIELDS, choose_rules, delete_kv_node, visible_kv_nodes
from controlplane.kv_nodes.simulated_scale import BYTES_PER_TOKEN, RATIO
from controlplane.kv_nodes.unpinning import NoSuchPinError, unpin
from controlplane.platform.models.api_key import ApiKey
from controlplane.platform.recorded_change import InUseError
from controlplane.platform.role import Role
from controlplane.platform.roles import may
from web.kv_nodes.load_advice import TOKENS, load_advice
from web.kv_nodes.move_rows import advisory_table, moves_finding, order_table
from web.kv_nodes.node_rows import compression_rows, finding, node_row
from web.kv_nodes.prefix_rows import SHOWN_PINS, left_out, pin_rows, prefix_rows
from web.kv_nodes.transfer_matrix import transfer_matrix
from web.shell.console_request import asked, console_actor, go, sent, why
from web.shell.frame import shell_context
from web.shell.no_role import needs_all_pools
from web.shell.rejection import FormRejection, attempted

ADDRESS = "/cache/store"
PAGE = "Cache"
MAX_ROWS = 200
SAID = {
    "deleted": "Node deleted. A restarted node registers again.",
    "copies": "The pool's gateway orders the moves; Moves and advisories lists them.",
    "rules": "The node applies them with its next report, within 5 s.",
    "unpinned": "The node applies it with its next report, within 5 s.",
}


@require_safe
@needs_all_pools(PAGE, "KV nodes serve all pools. Viewing them")
def kv_store(request: HttpRequest) -> HttpResponse:
    """Show all node managers to people who have a role in all pools."""
    return _page(request)


@require_safe
@needs_all_pools(PAGE, "KV nodes serve all pools. Viewing their moves")
def kv_moves(request: HttpRequest) -> HttpResponse:
    """Show the newest moves of KV blocks and the advisories of sessions, with what they gained."""
    orders, advisories = order_table(visible_kv_moves(console_actor(request)), timezone.now()), _advisories()
    context = shell_context(
        request,
        page=PAGE,
        tab="moves",
        finding={"text": moves_finding(orders, advisories), "shape": ""},
        orders=orders,
        advisories=advisories,
        fragment="/cache/moves?fragment=1",
    )
    return render(request, "kv_nodes/live.html" if "fragment" in request.GET else "kv_nodes/page.html", context)


@require_POST
def forget_node(request: HttpRequest, name: str) -> HttpResponse:
    """Delete a node that is gone or silent."""
    actor = console_actor(request)
    node = get_object_or_404(visible_kv_nodes(actor), name=name)
    done = attempted(lambda: delete_kv_node(node, actor=actor, why=why(request)), InUseError)
    if isinstance(done, FormRejection):
        return _page(request, problem=done.words, status=done.status)
    return go(ADDRESS, said="deleted")


@require_POST
def end_pin(request: HttpRequest, name: str) -> HttpResponse:
    """End a pin, so that the node no longer keeps the prefix longer than other blocks."""
    actor = console_actor(request)
    node = get_object_or_404(visible_kv_nodes(actor), name=name)
    pin = sent(request, "pin", 64), sent(request, "tenant", 64)
    done = attempted(lambda: unpin(node, *pin, actor=actor, why=why(request)), NoSuchPinError)
    if isinstance(done, FormRejection):
        return _page(request, problem=done.words, status=done.status)
    return go(ADDRESS, said="unpinned")


@require_POST
def set_rules(request: HttpRequest, name: str) -> HttpResponse:
    """Choose a node's eviction rule and SSD policy."""
    actor = console_actor(request)
    node = get_object_or_404(visible_kv_nodes(actor), name=name)
    chosen = {field: sent(request, field, 32) for field in CHOSEN_FIELDS}
    done = attempted(lambda: choose_rules(node, actor=actor, why=why(request), **chosen))
    if isinstance(done, FormRejection):
        return _page(request, problem=done.words, status=done.status)
    return go(ADDRESS, said="rules")


@require_POST
def set_prefix_copies(request: HttpRequest, slug: str) -> HttpResponse:
    """Change the number of nodes that hold a prefix of a pool."""
    actor = console_actor(request)
    pool = get_object_or_404(visible_pools(actor), slug=slug)
    number = sent(request, "copies", 4)
    copies = int(number) if number.isdecimal() else 0
    order = partial(set_copies, pool, sent(request, "prefix", 16), copies, actor=actor, why=why(request))
    done = attempted(order)
    if isinstance(done, FormRejection):
        return _page(request, problem=done.words, status=done.status)
    return go(ADDRESS, said="copies")


def _page(request: HttpRequest, *, problem: str = "", status: int = 200) -> HttpResponse:
    actor, now = console_actor(request), timezone.now()
    nodes = visible_kv_nodes(actor).order_by("name")
    rows = [node_row(node) for node in nodes[:MAX_ROWS]]
    pins = pin_rows(rows, now)
    users = list(Engine.objects.exclude(kv_node="").values_list("name", "connect_url", "kv_node", "supervised"))
    names = {row.name: row.name for row in rows} | {url.partition("://")[2]: name for name, url, *_ in users}
    keep: dict[str, list[str]] = {}
    for name, _, node, _ in sorted(users):
        keep.setdefault(node, []).append(name)
    prefixes = prefix_rows(Pool.objects.order_by("name"), [row.name for row in rows if row.live], now.timestamp())
    copied = asked(request, "pool", 128), asked(request, "copies", 16)
    pin = tuple(asked(request, name, 64) for name in ("node", "unpin", "tenant"))
    context = shell_context(
        request,
        page=PAGE,
        tab="store",
        rows=[(row, keep.get(row.name, ())) for row in rows],
        more=max(0, nodes.count() - len(rows)) if len(rows) == MAX_ROWS else 0,
        matrix=transfer_matrix(rows, names),
        finding=finding(rows),
        advice=load_advice(rows),
        compression=compression_rows(rows),
        advice_tokens=TOKENS,
        prefixes=prefixes,
        copying=next((row for row in prefixes if (row.pool.slug, row.prefix.key) == copied), None),
        scale=(BYTES_PER_TOKEN, RATIO) if any(supervised for *_, supervised in users) else None,
        now=now,
        pins=pins[:SHOWN_PINS],
        more_pins=left_out(rows),
        may_delete=may(actor, Role.OPERATOR),
        unpinning=next((row for row in pins if (row.node.name, row.pin.name, row.pin.tenant) == pin), None),
        ruling=next((row for row in rows if row.name == asked(request, "rules", 64)), None),
        evictions=EVICTION_CHOICES,
        ssd_policies=SSD_CHOICES,
        deleting=next((row for row in rows if row.name == asked(request, "delete", 64) and not row.live), None),
        problem=problem,
        said=SAID.get(request.GET.get("said", ""), ""),
        fragment=f"{ADDRESS}?fragment=1",
    )
    part = "kv_nodes/live.html" if "fragment" in request.GET else "kv_nodes/page.html"
    return render(request, part, context, status=status)


def _advisories() -> dict[str, Any]:
    """Return the gateways' advisory counts. Names are read only if there are counts to label."""
    totals = advised()
    pools, sources = [pool.pool_id for pool in totals.pools], [source.source for source in totals.sources]
    names = dict(Pool.objects.filter(slug__in=pools).values_list("slug", "name")) if pools else {}
    keys = dict(ApiKey.objects.filter(key_id__in=sources).values_list("key_id", "name")) if sources else {}
    return advisory_table(totals, names, keys)
