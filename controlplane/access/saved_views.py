"""Saves, shares, and deletes views: pages with their filters, which people have named."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs

from django.db import transaction
from django.db.models import Q

from controlplane.access.models.saved_view import SavedView
from controlplane.fleet.models.pool import Pool
from controlplane.fleet.visibility import visible_pools
from controlplane.platform import audit
from controlplane.platform.actor import Actor
from controlplane.platform.audit_values import audit_values
from controlplane.platform.field_problems import check_fields, problem
from controlplane.platform.role import Role
from controlplane.platform.roles import NotAllowedError, may, require, require_somewhere

PATHS = ("/requests", "/audit", "/incidents", "/usage")
MAX_VIEWS = 100
MAX_SHOWN = 500
_OBJECTS = frozenset(("engine", "tenant", "session", "key", "id", "object", "person", "request"))
"""Conditions that name an object, which may belong to a pool that a reader does not see."""


def visible_views(actor: Actor, **conditions: Any) -> list[SavedView]:
    """Return the actor's views and those that others share, except about pools that the actor does not see."""
    views = SavedView.objects.filter(Q(owner=actor.user) | Q(shared=True), **conditions).select_related("owner")
    if may(actor, Role.VIEWER):
        return list(views[:MAX_SHOWN])
    pools = set(visible_pools(actor).values_list("slug", flat=True))
    return [
        view
        for view in views[:MAX_SHOWN]
        if _is_own(view, actor) or (_pools_of(view) <= pools if _pools_of(view) else _OBJECTS.isdisjoint(_query(view)))
    ]


def save_view(view: SavedView, *, actor: Actor) -> SavedView:
    """Store a view. A new one replaces that of the same name. Raises NotAllowedError, InvalidFieldsError."""
    own = SavedView.objects.filter(owner=view.owner)
    if view.pk is None:
        known = own.filter(path=view.path, name=view.name).first()
        if known is None and own.count() >= MAX_VIEWS:
            raise problem("name", f"You have {MAX_VIEWS} views, the most there can be. Delete one.")
        if known is not None:
            known.query, known.shared, view = view.query, view.shared, known
    if view.path not in PATHS or not view.query:
        raise problem("query", "Set filters on a page, then save them there.")
    before = SavedView.objects.filter(pk=view.pk).first()
    _allow(before or view, actor)
    if view.shared:
        pools = list(Pool.objects.filter(slug__in=_pools_of(view)))
        for pool in pools:
            require(actor, Role.OPERATOR, pool)
        if not pools:
            require_somewhere(actor, Role.OPERATOR)
    with transaction.atomic():
        check_fields(view)
        view.save()
        _record(actor, before, view)
    return view


def delete_view(view: SavedView, *, actor: Actor) -> None:
    """Delete a view. Raises NotAllowedError unless it is the actor's, or a shared one and the actor is an admin."""
    _allow(view, actor)
    with transaction.atomic():
        _record(actor, view, None)
        view.delete()


def _allow(view: SavedView, actor: Actor) -> None:
    if not (_is_own(view, actor) or (view.shared and may(actor, Role.ADMIN))):
        raise NotAllowedError("Only its owner, and admins if it is shared, can change a view.")


def _record(actor: Actor, before: SavedView | None, after: SavedView | None) -> None:
    """Record a change of what other people see. Private views are their owner's business."""
    old, new = (audit_values(view) if view is not None and view.shared else None for view in (before, after))
    view = after or before
    if view is not None and (old or new):
        pool = next(iter(_pools_of(view)), "")[:64]
        audit.record_for(actor, f"saved_view.{'share' if new else 'unshare'}", view, before=old, after=new, pool=pool)


def _is_own(view: SavedView, actor: Actor) -> bool:
    return actor.user is not None and view.owner_id == actor.user.pk


def _query(view: SavedView) -> dict[str, list[str]]:
    return parse_qs(view.query)


def _pools_of(view: SavedView) -> set[str]:
    return set(_query(view).get("pool", ()))
