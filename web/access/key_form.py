"""The form fields of an API key, and the parsing of submitted values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from django.http import QueryDict
from django.utils import timezone

from controlplane.fleet.models.pool import Pool
from controlplane.platform.field_problems import FieldProblem
from controlplane.platform.format import one_line
from controlplane.platform.models.api_key import ApiKey
from controlplane.platform.models.tenant import Tenant
from controlplane.platform.role import ALL_POOLS, Role
from web.shell.form_field import CHECKS, NUMBER, SELECT, FieldOption, FormField, whole_number

NEVER = "never"
EXPIRY_DAYS = ("1", "7", "30", "90", "365", NEVER)
MAX_TENANTS = MAX_POOLS = 1000

_SCOPES = (
    FieldOption("infer", "infer", "/v1: chat and text completions through the proxy"),
    FieldOption("route", "route", "/api/v1/route: choose an engine for a request, and report its result"),
    FieldOption(
        "manage",
        "manage",
        "Management API with the role below. Sees cache hits of all tenants. Its reports count in full.",
    ),
)
_NAME = FormField("name", "Name", help="Purpose of the key.", required=True, limit=120)
_SCOPE = FormField("scopes", "Scopes", CHECKS, options=_SCOPES, chosen=("infer",))
_ROLE = FormField(
    "role",
    "Role for manage",
    SELECT,
    help="Role for the scope manage; ignored without that scope.",
    options=tuple(FieldOption(role.value, role.value) for role in Role),
    chosen=(Role.VIEWER.value,),
)
_POOLS = FormField(
    "pools",
    "Pools for manage",
    CHECKS,
    help="Pools in which the scope manage applies. None checked: no pool. An admin's key covers all pools.",
)
_RATE = FormField(
    "rate_per_min",
    "Requests per minute",
    NUMBER,
    help=(
        "Refilled evenly, with bursts up to the same number. Requests beyond it get 429. "
        "Shared by all connected gateways. Empty: no limit."
    ),
    unit="per min",
    limit=9,
)
_IN_FLIGHT = FormField(
    "max_in_flight",
    "Max in-flight requests",
    NUMBER,
    help="A decision counts until its report or the end of its reservation. Empty: no limit.",
    limit=9,
)
_CLASS = FormField(
    "slo_class",
    "SLO class",
    help="Default class of requests, in pools whose policy has it. Empty: none.",
    limit=32,
)
_CEILING = FormField(
    "priority_ceiling",
    "Priority ceiling",
    NUMBER,
    help="Most urgent priority; lower numbers go first. Empty: any.",
    limit=11,
)
_ORIGINS = FormField(
    "origins",
    "Web origins",
    help="Pages that may send advisories with this key's tokens, such as https://chat.example.com. Separate by spaces.",
    limit=4000,
)
_WHY = FormField("why", "Why", help="Optional; for the audit.", limit=200)


def creation_fields() -> list[FormField]:
    """Return the form fields of a new key."""
    tenants = Tenant.objects.order_by("slug").values_list("slug", "name")[:MAX_TENANTS]
    choices = tuple(FieldOption(slug, f"{slug} ({name})" if name != slug else slug) for slug, name in tenants)
    tenant = FormField("tenant", "Tenant", SELECT, options=choices, chosen=(choices[0].value if choices else "",))
    words = {"1": "in 1 day", NEVER: "never"}
    expiry = FormField(
        "expires",
        "Expires",
        SELECT,
        options=tuple(FieldOption(days, words.get(days, f"in {days} days")) for days in EXPIRY_DAYS),
        chosen=("90",),
    )
    return [tenant, _NAME, _SCOPE, _ROLE, _pools(), expiry, _RATE, _IN_FLIGHT, _CLASS, _CEILING, _ORIGINS, _WHY]


def change_fields(key: ApiKey) -> list[FormField]:
    """Return the form fields filled with a stored key's values."""
    stored = {
        "name": (key.name,),
        "scopes": tuple(key.scopes),
        "role": (key.role,),
        "pools": tuple(key.pools),
        "rate_per_min": (_text(key.rate_per_min),),
        "max_in_flight": (_text(key.max_in_flight),),
        "slo_class": (key.slo_class,),
        "priority_ceiling": (_text(key.priority_ceiling),),
        "origins": (" ".join(key.origins),),
    }
    shown = (_NAME, _SCOPE, _ROLE, _pools(key.pools), _RATE, _IN_FLIGHT, _CLASS, _CEILING, _ORIGINS, _WHY)
    return [_with(field, stored.get(field.name)) for field in shown]


def typed_changes(sent: QueryDict, problems: list[FieldProblem], role: str) -> dict[str, Any]:
    """Return the changed fields of a submitted form. Use `role` if the form has none; append unreadable fields to
    `problems`.
    """
    numbers = ("rate_per_min", "max_in_flight", "priority_ceiling")
    return {
        "name": one_line(sent.get("name", "")),
        "scopes": sent.getlist("scopes"),
        "role": one_line(sent.get("role", "")) or role,
        "pools": sent.getlist("pools"),
        **{name: whole_number(name, sent.get(name, ""), problems) for name in numbers},
        "slo_class": one_line(sent.get("slo_class", ""))[:33],
        "origins": sent.get("origins", "").split(),
    }


def typed_values(sent: QueryDict, problems: list[FieldProblem]) -> dict[str, Any]:
    """Return the arguments of create_api_key from a submitted form; append unreadable fields to `problems`."""
    days = sent.get("expires", "")
    if days not in EXPIRY_DAYS:
        problems.append(FieldProblem("expires", "Choose one of the times."))
        days = NEVER
    expires_at = None if days == NEVER else timezone.now() + timedelta(days=int(days))
    return {**typed_changes(sent, problems, Role.VIEWER.value), "expires_at": expires_at}


def _pools(kept: Iterable[str] = ()) -> FormField:
    """Return the pools to choose from. Deleted pools that the key still lists are included, so that they can be
    unticked.
    """
    known = dict(Pool.objects.order_by("slug").values_list("slug", "name")[:MAX_POOLS])
    gone = {slug: "deleted" for slug in kept if slug not in known and slug != ALL_POOLS}
    return replace(_POOLS, options=pool_options(known | gone))


def pool_options(pools: Mapping[str, str]) -> tuple[FieldOption, ...]:
    """Return the option for all pools, followed by these pools (name by slug)."""
    every = FieldOption(ALL_POOLS, "All pools", "Including pools created later")
    return (every, *(FieldOption(slug, slug, name) for slug, name in pools.items()))


def _with(field: FormField, chosen: tuple[str, ...] | None) -> FormField:
    return field if chosen is None else replace(field, chosen=chosen)


def _text(number: int | None) -> str:
    return "" if number is None else str(number)
