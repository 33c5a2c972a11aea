"""`/api/v1/tenants`."""

from __future__ import annotations

from django.db.models import QuerySet
from rest_framework import serializers

from controlplane.fleet import topology
from controlplane.fleet.topology import MAX_MODELS
from controlplane.platform.actor import Actor
from controlplane.platform.api.listing import Listing, contains
from controlplane.platform.api.strict_fields import ChangeBody, ModelShape, Text
from controlplane.platform.api.views import Changeable, Creatable, Deletable, by_method
from controlplane.platform.models.tenant import Tenant
from controlplane.platform.role import Role


class TenantShape(ModelShape):
    """An owner of API keys. `unsalted`: its cached blocks carry no salt, as for the first tenant."""

    served_models = serializers.ListField(child=serializers.CharField(), read_only=True)

    class Meta:
        model = Tenant
        fields = ("slug", "name", "served_models", "unsalted", "revision")


class TenantChange(ChangeBody):
    """Writable fields of a tenant."""

    name = Text(max_length=120)
    served_models = serializers.ListField(
        child=Text(),
        max_length=MAX_MODELS,
        required=False,
        help_text="Served models that its keys may use; empty: all. Omitted: unchanged.",
    )


class NewTenant(TenantChange):
    """Body of POST /tenants."""

    slug = Text(max_length=64, help_text="Its id; never changes.")


def _tenants(_actor: Actor) -> QuerySet[Tenant]:
    """Return all tenants. An actor with permission to see one tenant may see all of them."""
    return Tenant.objects.all()


class Tenants(Creatable):
    """List tenants, or create one."""

    noun = "tenants"
    shape = TenantShape
    rows = staticmethod(_tenants)
    created = staticmethod(topology.create_tenant)
    says = by_method(GET="List tenants.", POST="Create a tenant.")
    bodies = by_method(POST=NewTenant)
    changes_need = Role.ADMIN
    whole_fleet = True
    has_etag = True
    listing = Listing({"slug": ("slug",)}, "slug", {"name": contains("name", "Part of the name.")})


class OneTenant(Changeable, Deletable):
    """One tenant."""

    noun = "tenants"
    shape = TenantShape
    rows = staticmethod(_tenants)
    changed = staticmethod(topology.change_tenant)
    deleted = staticmethod(topology.delete_tenant)
    bodies = by_method(PUT=TenantChange, PATCH=TenantChange)
    changes_need = Role.ADMIN
    whole_fleet = True
