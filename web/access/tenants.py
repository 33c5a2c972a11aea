"""The Tenants and Groups pages: owners of API keys, and the roles of the sign-in provider's groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import Count, OuterRef, Q, Subquery, Value
from django.db.models.functions import Coalesce
from django.views.decorators.http import require_http_methods

from controlplane.access.models.role_grant import RoleGrant
from controlplane.access.resources import GROUP_GRANTS, TENANTS
from controlplane.fleet.models.pool import Pool
from controlplane.platform.actor import Actor
from controlplane.platform.role import ALL_POOLS
from controlplane.usage.summary import usage_of
from web.access.page import SAID, TABS, admins_only
from web.shell.console_request import kept
from web.shell.form_field import FieldOption
from web.shell.frame import Tab
from web.shell.object_pages import ObjectPages, Options

MAX_HOLDERS = 200


def _with_keys(tenants: Any) -> Any:
    active = Count("api_keys", filter=Q(api_keys__revoked_at=None))
    return tenants.annotate(keys=active, all_keys=Count("api_keys")).order_by("slug")


def _keys(tenant: Any) -> list[tuple[str, str]]:
    return [("Active keys", str(tenant.keys)), ("All keys", str(tenant.all_keys))]


def _usage(actor: Actor, tenant: Any) -> Mapping[str, Any]:
    return {"usage": usage_of(actor, tenant.slug), "owner_budget": kept(tenant=tenant.slug)}


def _with_people(grants: Any) -> Any:
    held = RoleGrant.objects.filter(by_group=OuterRef("group"), role=OuterRef("role")).annotate(
        where=Coalesce("pool__slug", Value(ALL_POOLS))
    )
    counts = held.filter(where=OuterRef("pool")).order_by().values("where").annotate(number=Count("pk"))
    return grants.annotate(people=Coalesce(Subquery(counts.values("number")), 0))


def _people(grant: Any) -> list[tuple[str, str]]:
    return [("People with this role", str(grant.people))]


def _holders(_actor: Actor, grant: Any) -> Mapping[str, Any]:
    pool = {"pool": None} if grant.pool == ALL_POOLS else {"pool__slug": grant.pool}
    held = RoleGrant.objects.filter(by_group=grant.group, role=grant.role, **pool)
    return {"holders": held.order_by("user__username").values_list("user__username", flat=True)[:MAX_HOLDERS]}


def _pools() -> Options:
    pools = [FieldOption(pool.slug, pool.name) for pool in Pool.objects.order_by("slug")[:500]]
    return {"pool": [FieldOption(ALL_POOLS, "all pools"), *pools]}


def _tabs(_actor: Actor) -> tuple[Tab, ...]:
    return TABS


def _pages(resource: Any, noun: str, **more: Any) -> Any:
    name = f"{noun}s"
    pages = ObjectPages(resource, noun, "Access", f"/access/{name}", f"access/{name}.html", _tabs, name, SAID, **more)
    return require_http_methods(["GET", "HEAD", "POST"])(admins_only(pages.view))


tenants = _pages(
    TENANTS, "tenant", named="tenant", search=("slug__icontains", "name__icontains"), counted=_with_keys, more=_keys,
    context=_usage,
)  # fmt: skip
groups = _pages(
    GROUP_GRANTS, "group", search=("group__icontains",), counted=_with_people, more=_people, context=_holders,
    options=_pools,
)  # fmt: skip
