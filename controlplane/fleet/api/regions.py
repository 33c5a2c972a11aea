"""`/api/v1/regions`."""

from __future__ import annotations

from controlplane.fleet.models.region import Region
from controlplane.fleet.resources import REGIONS
from controlplane.platform.api.listing import Listing, contains
from controlplane.platform.api.resource_bodies import ResourceShape, change_body, new_body
from controlplane.platform.api.views import Changeable, Creatable, Deletable, Objects, by_method


class RegionShape(ResourceShape):
    """A location with engines."""

    class Meta:
        model = Region


RegionChange = change_body(Region)


class _Regions(Objects):
    resource = REGIONS
    shape = RegionShape


class RegionsView(_Regions, Creatable):
    """List regions, or create one."""

    says = by_method(GET="List regions.", POST="Create a region.")
    bodies = by_method(POST=new_body(Region))
    listing = Listing({"slug": ("slug",)}, "slug", {"name": contains("name", "Part of the name.")})


class OneRegion(_Regions, Changeable, Deletable):
    """One region."""

    bodies = by_method(PUT=RegionChange, PATCH=RegionChange)
