"""`/api/v1/tenants`."""

from __future__ import annotations

from controlplane.access.resources import TENANTS
from controlplane.platform.api.listing import Listing, contains
from controlplane.platform.api.resource_bodies import ResourceShape, change_body, new_body
from controlplane.platform.api.views import Changeable, Creatable, Deletable, Objects, by_method
from controlplane.platform.models.tenant import Tenant


class TenantShape(ResourceShape):
    """An owner of API keys. `unsalted`: its cached blocks carry no salt, as for the first tenant."""

    class Meta:
        model = Tenant


TenantChange = change_body(Tenant)


class _Tenants(Objects):
    resource = TENANTS
    shape = TenantShape


class Tenants(_Tenants, Creatable):
    """List tenants, or create one."""

    says = by_method(GET="List tenants.", POST="Create a tenant.")
    bodies = by_method(POST=new_body(Tenant))
    listing = Listing({"slug": ("slug",)}, "slug", {"name": contains("name", "Part of the name.")})


class OneTenant(_Tenants, Changeable, Deletable):
    """One tenant."""

    bodies = by_method(PUT=TenantChange, PATCH=TenantChange)
