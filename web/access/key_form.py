"""The form fields of an API key, and the parsing of submitted values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from django.http import QueryDict
from django.utils import timezone

from controlplane.fleet.models.pool import Pool
from controlplane.platform.field_problems import FieldProblem
from controlplane.platform.models.api_key import ApiKey
from controlplane.platform.models.tenant import Tenant
from controlplane.platform.resource.declared_field import settable_fields
from controlplane.platform.role import ALL_POOLS, Role
from web.shell.form_field import SELECT, FieldOption, FormField
from web.shell.resource_form import form_fields, typed_values

NEVER = "never"
EXPIRY_DAYS = ("1", "7", "30", "90", "365", NEVER)
MAX_TENANTS = MAX_POOLS = 1000

_SCOPES = (
    FieldOption("infer", "infer", "/v1: chat and text completions through the proxy"),
    FieldOption("route", "route", "/api/v1/route: choose an engine for a request, and report its result"),
    FieldOption(
        "forward",
        "forward",
        "For trusted proxies: decide by the API keys of their clients. Its reports count in full. Without route, each "
        "client must send a key.",
    ),
    FieldOption(
        "manage",
        "manage",
        "Management API with the role below. Sees cache hits of all tenants. Its reports count in full.",
    ),
)
_ROLES = tuple(FieldOption(role.value, role.value) for role in Role)
_CREATED, CHANGED = (
    {name: field for name, field in settable_fields(ApiKey, creating=creating).items() if name != "expires_at"}
    for creating in (True, False)
)
_EXPIRES = FormField(
    "expires",
    "Expires",
    SELECT,
    options=tuple(
        FieldOption(days, {"1": "in 1 day", NEVER: "never"}.get(days, f"in {days} days")) for days in EXPIRY_DAYS
    ),
    chosen=("90",),
)
_WHY = FormField("why", "Why", help="Optional; for the audit.", limit=200)


def creation_fields() -> list[FormField]:
    """Return the form fields of a new key."""
    tenants = Tenant.objects.order_by("slug").values_list("slug", "name")[:MAX_TENANTS]
    choices = [FieldOption(slug, f"{slug} ({name})" if name != slug else slug) for slug, name in tenants]
    fields = form_fields(_CREATED, options={**_options(), "tenant": choices})
    after = 1 + list(_CREATED).index("pools")
    return [*fields[:after], _EXPIRES, *fields[after:], _WHY]


def change_fields(key: ApiKey) -> list[FormField]:
    """Return the form fields filled with a stored key's values."""
    return [*form_fields(CHANGED, key, _options(key.pools)), _WHY]


def typed_key(sent: QueryDict) -> tuple[dict[str, Any], list[FieldProblem]]:
    """Return the arguments of create_api_key except the tenant, and the problems of unreadable fields."""
    values, problems = typed_values(CHANGED, sent)
    days = sent.get("expires", "")
    if days not in EXPIRY_DAYS:
        problems.append(FieldProblem("expires", "Choose one of the times."))
    elif days != NEVER:
        values["expires_at"] = timezone.now() + timedelta(days=int(days))
    return values, problems


def _options(kept: Iterable[str] = ()) -> dict[str, Iterable[FieldOption]]:
    """Return the choices of the form. Deleted pools in `kept` are included, so that they can be unticked."""
    known = dict(Pool.objects.order_by("slug").values_list("slug", "name")[:MAX_POOLS])
    gone = {slug: "deleted" for slug in kept if slug not in known and slug != ALL_POOLS}
    return {"scopes": _SCOPES, "role": _ROLES, "pools": pool_options(known | gone)}


def pool_options(pools: Mapping[str, str]) -> tuple[FieldOption, ...]:
    """Return the option for all pools, followed by these pools (name by slug)."""
    every = FieldOption(ALL_POOLS, "All pools", "Including pools created later")
    return (every, *(FieldOption(slug, slug, name) for slug, name in pools.items()))
