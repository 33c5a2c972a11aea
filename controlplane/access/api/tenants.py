"""`/api/v1/tenants`."""

from __future__ import annotations

from django.db.models import QuerySet
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.access.api.tenant_shape import NewTenant, TenantChange, TenantShape
from controlplane.fleet import topology
from controlplane.platform.actor import Actor
from controlplane.platform.api.base import ApiView, by_method
from controlplane.platform.api.changeable_object import Changeable, Deletable
from controlplane.platform.api.filters import contains
from controlplane.platform.api.listing import Listing
from controlplane.platform.models.tenant import Tenant
from controlplane.platform.role import Role


def _tenants(_actor: Actor) -> QuerySet[Tenant]:
    """Return all tenants: who may see one may see them all."""
    return Tenant.objects.all()


class Tenants(ApiView):
    """All tenants, and new ones."""

    noun = "tenants"
    shape = TenantShape
    bodies = by_method(POST=NewTenant)
    answers = by_method(POST=(201, TenantShape))
    changes_need = Role.ADMIN
    whole_fleet = True
    has_etag = True
    listing = Listing({"slug": ("slug",)}, "slug", {"name": contains("name", "Part of the name.")})

    def get(self, request: Request) -> Response:
        """List tenants."""
        return self.show_page(_tenants(self.actor))

    def post(self, request: Request) -> Response:
        """Create a tenant."""
        body = self.body()
        return self.show(topology.create_tenant(**body, actor=self.actor), 201)


class OneTenant(Changeable, Deletable):
    """One tenant."""

    noun = "tenants"
    shape = TenantShape
    rows = staticmethod(_tenants)
    changed = staticmethod(topology.change_tenant)
    deleted = staticmethod(topology.delete_tenant)
    bodies = by_method(PUT=TenantChange, PATCH=TenantChange)
    answers = by_method(DELETE=(204, None))
    changes_need = Role.ADMIN
    whole_fleet = True
