"""Creates, changes, and deletes regions, pools, and tenants. Admins only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from controlplane.fleet.actuator_settings import checked_settings
from controlplane.fleet.model_services import reject_while_served
from controlplane.fleet.models.pool import ActuatorKind, Pool
from controlplane.fleet.models.region import Region
from controlplane.fleet.sovereignty.rules import reject_while_named
from controlplane.platform import recorded_change
from controlplane.platform.actor import Actor
from controlplane.platform.field_problems import check_names, problem
from controlplane.platform.models.tenant import Tenant
from controlplane.platform.resource.declared_field import settable_fields
from controlplane.platform.role import Role
from controlplane.platform.roles import require
from controlplane.policies.models.policy import Policy

REGION_FIELDS, POOL_FIELDS, TENANT_FIELDS = (frozenset(settable_fields(model)) for model in (Region, Pool, Tenant))
MAX_MODELS = 100


def create_region(slug: str, name: str, *, actor: Actor, why: str = "") -> Region:
    """Store a new region. Raises NotAllowedError, InvalidFieldsError."""
    require(actor, Role.ADMIN)
    return recorded_change.create(Region(slug=slug, name=name), "region.create", actor=actor, why=why)


def change_region(
    region: Region, changes: Mapping[str, Any], *, actor: Actor, expected: int | None = None, why: str = ""
) -> Region:
    """Change REGION_FIELDS. Raises NotAllowedError, InvalidFieldsError, StaleRevisionError."""
    require(actor, Role.ADMIN)
    check_names(changes, REGION_FIELDS)
    return recorded_change.change(region, changes, "region.change", actor=actor, expected=expected, why=why)


def delete_region(region: Region, *, actor: Actor, expected: int | None = None, why: str = "") -> None:
    """Delete a region that has no pools and is in no rule. Raises NotAllowedError, StaleRevisionError, InUseError."""
    require(actor, Role.ADMIN)
    reject_while_named(region.slug, "from_regions", "to_regions")
    reject_while_served(region=region.slug)
    recorded_change.delete(region, "region.delete", actor=actor, expected=expected, why=why)


def create_pool(
    slug: str,
    name: str,
    region: Region,
    served_model: str,
    policy: Policy,
    *,
    actor: Actor,
    why: str = "",
    **settings: Any,
) -> Pool:
    """Store and publish a new pool, with isolated tenants if there are at least two. `settings` are further
    POOL_FIELDS.

    Raises NotAllowedError, InvalidFieldsError.
    """
    require(actor, Role.ADMIN)
    check_names(settings, POOL_FIELDS)
    settings = {"isolated": Tenant.objects.count() > 1, **_with_actuator(settings, ActuatorKind.MANUAL, {})}
    pool = Pool(slug=slug, name=name, region=region, served_model=served_model, policy=policy, **settings)
    return recorded_change.create(pool, "pool.create", actor=actor, why=why)


def change_pool(
    pool: Pool, changes: Mapping[str, Any], *, actor: Actor, expected: int | None = None, why: str = ""
) -> Pool:
    """Change and publish POOL_FIELDS. Raises NotAllowedError, InvalidFieldsError, StaleRevisionError."""
    require(actor, Role.ADMIN)
    check_names(changes, POOL_FIELDS)
    changes = _with_actuator(changes, pool.actuator, pool.actuator_settings)
    return recorded_change.change(pool, changes, "pool.change", actor=actor, expected=expected, why=why)


def _with_actuator(changes: Mapping[str, Any], kind: str, stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changes with complete actuator settings. A new kind gets default settings."""
    if "actuator" not in changes and "actuator_settings" not in changes:
        return dict(changes)
    wanted = changes.get("actuator", kind)
    given = changes.get("actuator_settings", stored if wanted == kind else {})
    return {**changes, "actuator": wanted, "actuator_settings": checked_settings(wanted, given)}


def delete_pool(pool: Pool, *, actor: Actor, expected: int | None = None, why: str = "") -> None:
    """Delete a pool without engines. Raises NotAllowedError, StaleRevisionError, InUseError."""
    require(actor, Role.ADMIN)
    reject_while_served(pool=pool.slug)
    recorded_change.delete(pool, "pool.delete", actor=actor, expected=expected, why=why)


def create_tenant(slug: str, name: str, *, served_models: Sequence[str] = (), actor: Actor, why: str = "") -> Tenant:
    """Store a new tenant that may use these served models (empty: all). Raises NotAllowedError, InvalidFieldsError.

    The first tenant uses no salt, so that its caches stay warm when later tenants are created.
    """
    require(actor, Role.ADMIN)
    first = not Tenant.objects.exists()
    tenant = Tenant(slug=slug, name=name, served_models=_checked_models(served_models), unsalted=first)
    return recorded_change.create(tenant, "tenant.create", actor=actor, why=why)


def change_tenant(
    tenant: Tenant, changes: Mapping[str, Any], *, actor: Actor, expected: int | None = None, why: str = ""
) -> Tenant:
    """Change and publish TENANT_FIELDS. Raises NotAllowedError, InvalidFieldsError, StaleRevisionError."""
    require(actor, Role.ADMIN)
    check_names(changes, TENANT_FIELDS)
    if "served_models" in changes:
        changes = {**changes, "served_models": _checked_models(changes["served_models"])}
    return recorded_change.change(tenant, changes, "tenant.change", actor=actor, expected=expected, why=why)


def delete_tenant(tenant: Tenant, *, actor: Actor, expected: int | None = None, why: str = "") -> None:
    """Delete a tenant that has no keys and is in no rule. Raises NotAllowedError, StaleRevisionError, InUseError."""
    require(actor, Role.ADMIN)
    reject_while_named(tenant.slug, "tenants")
    recorded_change.delete(tenant, "tenant.delete", actor=actor, expected=expected, why=why)


def _checked_models(names: Any) -> list[str]:
    """Return the distinct names, sorted. Models that are not served yet are allowed."""
    listed = isinstance(names, Sequence) and not isinstance(names, str) and len(names) <= MAX_MODELS
    if not listed or not all(isinstance(name, str) and 0 < len(name) <= 200 for name in names):
        raise problem("served_models", f"Must be at most {MAX_MODELS} names of served models.")
    return sorted(set(names))
