"""`/api/v1/services`."""

from __future__ import annotations

from controlplane.fleet.models.model_service import ModelService
from controlplane.fleet.resources import SERVICES
from controlplane.platform.api.listing import Listing
from controlplane.platform.api.resource_bodies import ResourceShape, change_body, new_body
from controlplane.platform.api.views import Changeable, Creatable, Deletable, Objects, by_method


class ModelServiceShape(ResourceShape):
    """Names that clients send as model, and what serves them."""

    class Meta:
        model = ModelService


ModelServiceChange = change_body(ModelService)


class _Services(Objects):
    resource = SERVICES
    shape = ModelServiceShape


class ServicesView(_Services, Creatable):
    """List services, or create one."""

    says = by_method(GET="List services.", POST="Create a service.")
    bodies = by_method(POST=new_body(ModelService))
    listing = Listing({"slug": ("slug",)}, "slug", {})


class OneService(_Services, Changeable, Deletable):
    """One service."""

    bodies = by_method(PUT=ModelServiceChange, PATCH=ModelServiceChange)
