"""`/api/v1/regions`."""

from __future__ import annotations

from controlplane.fleet import topology
from controlplane.fleet.models.region import Region
from controlplane.fleet.visibility import visible_regions
from controlplane.platform.api.listing import Listing, contains
from controlplane.platform.api.strict_fields import ChangeBody, ModelShape, Text
from controlplane.platform.api.views import Changeable, Creatable, Deletable, by_method
from controlplane.platform.role import Role


class RegionShape(ModelShape):
    """A location with engines."""

    class Meta:
        model = Region
        fields = ("slug", "name", "revision")


class RegionChange(ChangeBody):
    """Writable fields of a region."""

    name = Text(max_length=120)


class NewRegion(RegionChange):
    """Body of POST /regions."""

    slug = Text(max_length=64, help_text="Its id; never changes.")


class RegionsView(Creatable):
    """List regions, or create one."""

    noun = "regions"
    shape = RegionShape
    rows = staticmethod(visible_regions)
    created = staticmethod(topology.create_region)
    says = by_method(GET="List regions.", POST="Create a region.")
    bodies = by_method(POST=NewRegion)
    changes_need = Role.ADMIN
    has_etag = True
    listing = Listing({"slug": ("slug",)}, "slug", {"name": contains("name", "Part of the name.")})


class OneRegion(Changeable, Deletable):
    """One region."""

    noun = "regions"
    shape = RegionShape
    rows = staticmethod(visible_regions)
    changed = staticmethod(topology.change_region)
    deleted = staticmethod(topology.delete_region)
    bodies = by_method(PUT=RegionChange, PATCH=RegionChange)
    changes_need = Role.ADMIN
