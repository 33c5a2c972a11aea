"""`/api/v1/tenants`."""

from __future__ import annotations

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response
from typing_extensions import override

from controlplane.access.api.tenant_shape import NewTenant, TenantChange, TenantShape
from controlplane.fleet import topology
from controlplane.platform.api.base import ApiView, by_method
from controlplane.platform.api.changeable_object import Changeable, Deletable
from controlplane.platform.api.filters import contains
from controlplane.platform.api.listing import Listing
from controlplane.platform.models.tenant import Tenant
from controlplane.platform.role import Role


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
        return self.show_page(Tenant.objects.all())

    def post(self, request: Request) -> Response:
        """Create a tenant."""
        return self.once(self._create)

    def _create(self) -> Response:
        body = self.body()
        return self.show(topology.create_tenant(**body, actor=self.actor), 201)


class OneTenant(Changeable, Deletable):
    """One tenant."""

    noun = "tenants"
    shape = TenantShape
    bodies = by_method(PUT=TenantChange, PATCH=TenantChange)
    answers = by_method(DELETE=(204, None))
    changes_need = Role.ADMIN
    whole_fleet = True

    @override
    def thing(self, *, slug: str) -> Tenant:
        """Return the tenant."""
        return Tenant.objects.get(slug=slug)

    @override
    def change(self, thing: Tenant, changes: dict[str, Any], *, expected: int | None, why: str) -> Tenant:
        """Change it."""
        return topology.change_tenant(thing, changes, actor=self.actor, expected=expected, why=why)

    @override
    def remove(self, thing: Tenant, *, expected: int | None, why: str) -> None:
        """Delete it."""
        topology.delete_tenant(thing, actor=self.actor, expected=expected, why=why)
