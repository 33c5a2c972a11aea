"""Regions, pools, engines, and services as resources."""

from __future__ import annotations

from django.db.models import QuerySet

from controlplane.fleet import topology
from controlplane.fleet.engine_lifecycle import delete_idle_engine
from controlplane.fleet.engine_registration import change_engine, register_engine
from controlplane.fleet.model_services import change_service, create_service, delete_service
from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.model_service import ModelService
from controlplane.fleet.models.pool import Pool
from controlplane.fleet.models.region import Region
from controlplane.fleet.visibility import visible_engines, visible_pools, visible_regions
from controlplane.platform.actor import Actor
from controlplane.platform.resource.resource import Resource
from controlplane.platform.role import Role


def _pools(actor: Actor) -> QuerySet[Pool]:
    return visible_pools(actor).select_related("region", "policy").prefetch_related("learned_costs")


REGIONS = Resource(
    "regions",
    Region,
    visible_regions,
    created=topology.create_region,
    changed=topology.change_region,
    deleted=topology.delete_region,
    changes_need=Role.ADMIN,
)
POOLS = Resource(
    "pools",
    Pool,
    _pools,
    created=topology.create_pool,
    changed=topology.change_pool,
    deleted=topology.delete_pool,
    changes_need=Role.ADMIN,
)
ENGINES = Resource(
    "engines",
    Engine,
    visible_engines,
    created=register_engine,
    changed=change_engine,
    deleted=delete_idle_engine,
)
SERVICES = Resource(
    "services",
    ModelService,
    lambda _actor: ModelService.objects.all(),
    created=create_service,
    changed=change_service,
    deleted=delete_service,
    changes_need=Role.ADMIN,
    whole_fleet=True,
)
