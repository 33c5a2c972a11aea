"""Selects the tenant of keys that commands create."""

from __future__ import annotations

from django.core.management.base import CommandError

from controlplane.fleet.topology import create_tenant
from controlplane.platform.actor import Actor
from controlplane.platform.models.tenant import Tenant

FIRST_TENANT = "default"


def tenant_for_key(slug: str, *, actor: Actor) -> Tenant:
    """Return the tenant (empty: the first one). Create it if the installation has none. Raises CommandError."""
    tenants = Tenant.objects.order_by("pk")
    if not tenants.exists():
        return create_tenant(slug or FIRST_TENANT, (slug or FIRST_TENANT).capitalize(), actor=actor)
    tenant = tenants.filter(slug=slug).first() if slug else tenants.first()
    if tenant is None:
        known = ", ".join(tenants.values_list("slug", flat=True))
        raise CommandError(f"There is no tenant {slug!r}. Known tenants: {known}.")
    return tenant
