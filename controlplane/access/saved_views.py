"""Saves, shares, and deletes views: pages with their filters, which people have named."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q

from controlplane.access.models.saved_view import MAX_NAME, MAX_QUERY, SavedView
from controlplane.fleet.models.pool import Pool
from controlplane.fleet.visibility import visible_pools
from controlplane.platform import audit
from controlplane.platform.actor import Actor
from controlplane.platform.field_problems import FieldProblem, InvalidFieldsError, check_fields, problem
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
    everything, pools = may(actor, Role.VIEWER), set[str]()
    if not everything:
        pools = set(visible_pools(actor).values_list("slug", flat=True))
    return [
        view
        for view in views[:MAX_SHOWN]
        if everything or _is_own(view, actor) or _pools_of(view) & pools or not (_pools_of(view) or _names_object(view))
    ]


def save_view(owner: User, *, name: str, path: str, query: str, shared: bool, actor: Actor) -> SavedView:
    """Store a view of the actor, or replace the one with this name. Raises NotAllowedError, InvalidFieldsError."""
    stored = SavedView.objects.filter(owner=owner, path=path, name=name).first()
    if stored is None and SavedView.objects.filter(owner=owner).count() >= MAX_VIEWS:
        raise problem("name", f"You have {MAX_VIEWS} views, the most there can be. Delete one.")
    return _store(stored or SavedView(owner=owner, name=name, path=path), query, shared, actor)


def change_view(view: SavedView, *, name: str, shared: bool, actor: Actor) -> SavedView:
    """Rename a view, and share it or keep it private. Raises NotAllowedError, InvalidFieldsError."""
    _allow(view, actor)
    view.name = name
    return _store(view, view.query, shared, actor)


def delete_view(view: SavedView, *, actor: Actor) -> None:
    """Delete a view. Raises NotAllowedError unless it is the actor's, or a shared one and the actor is an admin."""
    _allow(view, actor)
    with transaction.atomic():
        if view.shared:
            audit.record_for(actor, "saved_view.unshare", view, before=_values(view))
        view.delete()


def _store(view: SavedView, query: str, shared: bool, actor: Actor) -> SavedView:
    known = SavedView.objects.filter(pk=view.pk).first() if view.pk else None
    before = known if known is not None and known.shared else None
    view.query, view.shared = query, shared
    problems = [] if view.path in PATHS else [FieldProblem("path", "This page has no views.")]
    if not 0 < len(query) <= MAX_QUERY:
        problems.append(FieldProblem("query", "Set a filter first." if not query else "There are too many filters."))
    if not 0 < len(view.name) <= MAX_NAME:
        problems.append(FieldProblem("name", f"Use 1 to {MAX_NAME} characters."))
    if problems:
        raise InvalidFieldsError(problems)
    if shared:
        _allow_sharing(view, actor)
    with transaction.atomic():
        check_fields(view)
        view.save()
        if shared or before is not None:
            old, new = before and _values(before), _values(view) if shared else None
            verb = "saved_view.share" if shared else "saved_view.unshare"
            audit.record_for(actor, verb, view, before=old, after=new, pool=_pool_named(view))
    return view


def _allow(view: SavedView, actor: Actor) -> None:
    if not (_is_own(view, actor) or (view.shared and may(actor, Role.ADMIN))):
        raise NotAllowedError("Only its owner, and admins if it is shared, can change a view.")


def _allow_sharing(view: SavedView, actor: Actor) -> None:
    pools = list(Pool.objects.filter(slug__in=_pools_of(view)))
    for pool in pools:
        require(actor, Role.OPERATOR, pool)
    if not pools:
        require_somewhere(actor, Role.OPERATOR)


def _is_own(view: SavedView, actor: Actor) -> bool:
    return actor.user is not None and view.owner_id == actor.user.pk


def _pools_of(view: SavedView) -> set[str]:
    return set(parse_qs(view.query).get("pool", ()))


def _pool_named(view: SavedView) -> str:
    return next(iter(_pools_of(view)), "")[:64]


def _names_object(view: SavedView) -> bool:
    return not _OBJECTS.isdisjoint(parse_qs(view.query))


def _values(view: SavedView) -> dict[str, Any]:
    return {"name": view.name, "path": view.path, "query": view.query, "owner": view.owner.username}
