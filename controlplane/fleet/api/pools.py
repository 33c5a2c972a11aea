"""`/api/v1/pools`."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from rest_framework.request import Request
from rest_framework.response import Response
from typing_extensions import override

from controlplane.fleet import topology
from controlplane.fleet.api.pool_shape import NewPool, PoolChange, PoolShape
from controlplane.fleet.models.pool import KeySource, Pool, PoolMode
from controlplane.fleet.visibility import visible_pools
from controlplane.platform.actor import Actor
from controlplane.platform.api.base import ApiView, by_method
from controlplane.platform.api.changeable_object import Changeable, Deletable
from controlplane.platform.api.filters import contains, exact, one_of
from controlplane.platform.api.listing import Listing
from controlplane.platform.field_problems import problem
from controlplane.platform.role import Role

_SAY_THE_MODE = 'This pool observes, and a PUT without mode would make it route; send "mode": "observe" or "route".'


def _pools(actor: Actor) -> QuerySet[Pool]:
    return visible_pools(actor).select_related("region", "policy")


class Pools(ApiView):
    """All pools, and new ones."""

    noun = "pools"
    shape = PoolShape
    bodies = by_method(POST=NewPool)
    answers = by_method(POST=(201, PoolShape))
    changes_need = Role.ADMIN
    has_etag = True
    listing = Listing(
        {"slug": ("slug",), "region": ("region__slug", "slug")},
        "slug",
        {
            "region": exact("region__slug", "Slug of the region."),
            "policy": exact("policy__slug", "Slug of the policy."),
            "served_model": exact("served_model", "Name of the served model."),
            "key_source": one_of("key_source", KeySource.values, "Source of block keys."),
            "name": contains("name", "Part of the name."),
        },
    )

    def get(self, request: Request) -> Response:
        """List pools."""
        return self.show_page(_pools(self.actor).prefetch_related("learned_costs"))

    def post(self, request: Request) -> Response:
        """Create a pool."""
        return self.show(topology.create_pool(**self.body(), actor=self.actor), 201)


class OnePool(Changeable, Deletable):
    """One pool."""

    noun = "pools"
    shape = PoolShape
    rows = staticmethod(_pools)
    changed = staticmethod(topology.change_pool)
    deleted = staticmethod(topology.delete_pool)
    bodies = by_method(PUT=PoolChange, PATCH=PoolChange)
    answers = by_method(DELETE=(204, None))
    changes_need = Role.ADMIN

    @override
    def put(self, request: Request, **names: Any) -> Response:
        """Replace all values that can change; what is left out takes its default.

        Not so `mode`: a pool that observes never begins to route because a body does not name it. Such a body is
        refused with 400; say "observe" to go on, or "route".
        """
        return super().put(request, **names)

    @override
    def body(self, current: Any = None) -> dict[str, Any]:
        """Return the checked body; one that leaves open whether a pool that observes is to route is refused."""
        values = super().body(current)
        if self.request.method == "PUT" and current.mode == PoolMode.OBSERVE and "mode" not in values:
            raise problem("mode", _SAY_THE_MODE)
        return values
