"""`/api/v1/regions`."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.fleet import topology
from controlplane.fleet.api.region_shape import NewRegion, RegionChange, RegionShape
from controlplane.fleet.visibility import visible_regions
from controlplane.platform.api.base import ApiView, by_method
from controlplane.platform.api.changeable_object import Changeable, Deletable
from controlplane.platform.api.filters import contains
from controlplane.platform.api.listing import Listing
from controlplane.platform.role import Role


class Regions(ApiView):
    """All regions, and new ones."""

    noun = "regions"
    shape = RegionShape
    bodies = by_method(POST=NewRegion)
    answers = by_method(POST=(201, RegionShape))
    changes_need = Role.ADMIN
    has_etag = True
    listing = Listing({"slug": ("slug",)}, "slug", {"name": contains("name", "Part of the name.")})

    def get(self, request: Request) -> Response:
        """List regions."""
        return self.show_page(visible_regions(self.actor))

    def post(self, request: Request) -> Response:
        """Create a region."""
        body = self.body()
        return self.show(topology.create_region(**body, actor=self.actor), 201)


class OneRegion(Changeable, Deletable):
    """One region."""

    noun = "regions"
    shape = RegionShape
    rows = staticmethod(visible_regions)
    changed = staticmethod(topology.change_region)
    deleted = staticmethod(topology.delete_region)
    bodies = by_method(PUT=RegionChange, PATCH=RegionChange)
    answers = by_method(DELETE=(204, None))
    changes_need = Role.ADMIN
