"""Creates, changes and deletes regions, pools and tenants; admins only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from controlplane.actuators.settings import checked_settings
from controlplane.models import Policy, Pool, Region, Role, Tenant
from controlplane.models.pool import ActuatorKind
from controlplane.services import recorded_change
from controlplane.services.actor import Actor
from controlplane.services.field_problems import check_names
from controlplane.services.roles import require

REGION_FIELDS = frozenset({"name"})
TENANT_FIELDS = frozenset({"name"})
POOL_FIELDS = frozenset(
    {
        "name",
        "region",
        "served_model",
        "key_source",
        "block_tokens",
        "block_bytes",
        "isolated",
        "max_prompt_tokens",
        "policy",
        "mode",
        "actuator",
        "actuator_settings",
        "production",
    }
)


def create_region(slug: str, name: str, *, actor: Actor, why: str = "") -> Region:
    """Store a new region; raises NotAllowedError, InvalidFieldsError."""
    require(actor, Role.ADMIN)
    return recorded_change.create(Region(slug=slug, name=name), "region.create", actor=actor, why=why)


def change_region(
    region: Region, changes: Mapping[str, Any], *, actor: Actor, expected: int | None = None, why: str = ""
) -> Region:
    """Change REGION_FIELDS; raises NotAllowedError, InvalidFieldsError, StaleRevisionError."""
    require(actor, Role.ADMIN)
    check_names(changes, REGION_FIELDS)
    return recorded_change.change(region, changes, "region.change", actor=actor, expected=expected, why=why)


def delete_region(region: Region, *, actor: Actor, expected: int | None = None, why: str = "") -> None:
    """Delete a region without pools; raises NotAllowedError, StaleRevisionError, InUseError."""
    require(actor, Role.ADMIN)
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
    """Store and publish a new pool; `settings` are further POOL_FIELDS.

    Raises NotAllowedError, InvalidFieldsError.
    """
    require(actor, Role.ADMIN)
    check_names(settings, POOL_FIELDS)
    settings = _with_actuator(settings, ActuatorKind.MANUAL, {})
    pool = Pool(slug=slug, name=name, region=region, served_model=served_model, policy=policy, **settings)
    return recorded_change.create(pool, "pool.create", actor=actor, why=why, pool=slug)


def change_pool(
    pool: Pool, changes: Mapping[str, Any], *, actor: Actor, expected: int | None = None, why: str = ""
) -> Pool:
    """Change and publish POOL_FIELDS; raises NotAllowedError, InvalidFieldsError, StaleRevisionError."""
    require(actor, Role.ADMIN)
    check_names(changes, POOL_FIELDS)
    changes = _with_actuator(changes, pool.actuator, pool.actuator_settings)
    return recorded_change.change(pool, changes, "pool.change", actor=actor, expected=expected, why=why, pool=pool.slug)


def _with_actuator(changes: Mapping[str, Any], kind: str, stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changes with complete settings of the actuator; another kind begins with its defaults."""
    if "actuator" not in changes and "actuator_settings" not in changes:
        return dict(changes)
    wanted = changes.get("actuator", kind)
    given = changes.get("actuator_settings", stored if wanted == kind else {})
    return {**changes, "actuator": wanted, "actuator_settings": checked_settings(wanted, given)}


def delete_pool(pool: Pool, *, actor: Actor, expected: int | None = None, why: str = "") -> None:
    """Delete a pool without engines; raises NotAllowedError, StaleRevisionError, InUseError."""
    require(actor, Role.ADMIN)
    recorded_change.delete(pool, "pool.delete", actor=actor, expected=expected, why=why, pool=pool.slug)


def create_tenant(slug: str, name: str, *, actor: Actor, why: str = "") -> Tenant:
    """Store a new tenant; raises NotAllowedError, InvalidFieldsError."""
    require(actor, Role.ADMIN)
    return recorded_change.create(Tenant(slug=slug, name=name), "tenant.create", actor=actor, why=why)


def change_tenant(
    tenant: Tenant, changes: Mapping[str, Any], *, actor: Actor, expected: int | None = None, why: str = ""
) -> Tenant:
    """Change TENANT_FIELDS; raises NotAllowedError, InvalidFieldsError, StaleRevisionError."""
    require(actor, Role.ADMIN)
    check_names(changes, TENANT_FIELDS)
    return recorded_change.change(tenant, changes, "tenant.change", actor=actor, expected=expected, why=why)


def delete_tenant(tenant: Tenant, *, actor: Actor, expected: int | None = None, why: str = "") -> None:
    """Delete a tenant without keys; raises NotAllowedError, StaleRevisionError, InUseError."""
    require(actor, Role.ADMIN)
    recorded_change.delete(tenant, "tenant.delete", actor=actor, expected=expected, why=why)
