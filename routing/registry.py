"""The one table of placements and queue orders, from their names to their constructors."""

from __future__ import annotations

from typing import cast

import msgspec

from routing.placement import Placement
from routing.placements.aibrix_prefix import AibrixPrefix
from routing.placements.cache_affinity import CacheAffinity
from routing.placements.central import Central
from routing.placements.consistent_hash import ConsistentHash
from routing.placements.dual_map import DualMap
from routing.placements.dynamo_kv import DynamoKv
from routing.placements.lbgr import Lbgr
from routing.placements.least_cost import LeastCost
from routing.placements.least_loaded import LeastLoaded
from routing.placements.llmd_weighted import LlmdWeighted
from routing.placements.min_ttft import MinTtft
from routing.placements.mooncake import Mooncake
from routing.placements.power_of_two import PowerOfTwo
from routing.placements.preble import Preble
from routing.placements.production_stack_load_aware import ProductionStackLoadAware
from routing.placements.random_engine import RandomEngine
from routing.placements.ray_prefix import RayPrefix
from routing.placements.round_robin import RoundRobin
from routing.placements.sglang_cache_aware import SglangCacheAware
from routing.placements.skywalker import SkyWalker
from routing.placements.vllm_cache_aware import VllmCacheAware
from routing.policy_document import RoutingPolicy, Stage
from routing.queue_order import QueueOrder
from routing.queue_orders.edf import Edf
from routing.queue_orders.fifo import Fifo
from routing.queue_orders.late_binding import LateBinding
from routing.queue_orders.priority import Priority
from routing.queue_orders.shed import Shed
from routing.queue_orders.slack import Slack

PLACEMENTS: dict[str, type[msgspec.Struct]] = {
    "least_cost": LeastCost,
    "dual_map": DualMap,
    "round_robin": RoundRobin,
    "random": RandomEngine,
    "least_loaded": LeastLoaded,
    "cache_affinity": CacheAffinity,
    "min_ttft": MinTtft,
    "mooncake": Mooncake,
    "preble": Preble,
    "sglang_cache_aware": SglangCacheAware,
    "vllm_cache_aware": VllmCacheAware,
    "dynamo_kv": DynamoKv,
    "lbgr": Lbgr,
    "power_of_two": PowerOfTwo,
    "consistent_hash": ConsistentHash,
    "skywalker": SkyWalker,
    "llmd_weighted": LlmdWeighted,
    "aibrix_prefix": AibrixPrefix,
    "production_stack_load_aware": ProductionStackLoadAware,
    "ray_prefix": RayPrefix,
    "central": Central,
}

QUEUE_ORDERS: dict[str, type[msgspec.Struct]] = {
    "fifo": Fifo,
    "shed": Shed,
    "slack": Slack,
    "edf": Edf,
    "priority": Priority,
    "late_binding": LateBinding,
}

CENTRAL_PLACEMENT = "central"

STAGES: dict[str, dict[str, type[msgspec.Struct]]] = {"placement": PLACEMENTS, "order": QUEUE_ORDERS}
"""The table behind each stage of a policy document, by the name of the document's field."""


def pair_problem(placement: str, order: str) -> str:
    """Return why these two do not go together, in one sentence with its path; "" where they do.

    A placement that binds nothing needs an order by which engines pull, and that order needs all requests
    unbound. Unknown names are no problem here.
    """
    pulls = hasattr(QUEUE_ORDERS.get(order), "pool_queue")
    if placement == CENTRAL_PLACEMENT and order in QUEUE_ORDERS and not pulls:
        binding = ", ".join(name for name, kind in QUEUE_ORDERS.items() if hasattr(kind, "pool_queue"))
        return (
            f"order.name: {order!r} binds no request to an engine, and placement {placement!r} does not either; "
            f"orders that do: {binding}"
        )
    if pulls and placement in PLACEMENTS and placement != CENTRAL_PLACEMENT:
        return (
            f"placement.name: order {order!r} lets engines pull unbound requests, but {placement!r} binds them first; "
            f"use {CENTRAL_PLACEMENT!r}"
        )
    return ""


def stage_pairs() -> list[tuple[str, str]]:
    """Return every placement with every order that goes with it, in the order of the tables."""
    return [(one, other) for one in PLACEMENTS for other in QUEUE_ORDERS if not pair_problem(one, other)]


class PolicyStageError(ValueError):
    """A stage names nothing we know, or its parameters do not fit; the message starts with the path."""


def build_placement(stage: Stage) -> Placement:
    """Return the placement of this name; raises PolicyStageError and lists the known names."""
    return cast("Placement", _build(stage, PLACEMENTS, "placement"))


def build_queue_order(stage: Stage) -> QueueOrder:
    """Return the queue order of this name; raises PolicyStageError and lists the known names."""
    return cast("QueueOrder", _build(stage, QUEUE_ORDERS, "order"))


def stage_problems(policy: RoutingPolicy) -> list[str]:
    """Return what is wrong with the policy's stages, one sentence with its path each; [] when it can run."""
    problems = []
    for build, stage in ((build_placement, policy.placement), (build_queue_order, policy.order)):
        try:
            build(stage)
        except PolicyStageError as error:
            problems.append(str(error))
    pair = pair_problem(policy.placement.name, policy.order.name)
    return [*problems, pair] if pair else problems


def _build(stage: Stage, table: dict[str, type[msgspec.Struct]], path: str) -> msgspec.Struct:
    kind = table.get(stage.name)
    if kind is None:
        raise PolicyStageError(f"{path}.name: {stage.name!r} is unknown; known are {', '.join(sorted(table))}")
    try:
        return msgspec.convert(stage.params, kind)
    except msgspec.ValidationError as error:
        raise PolicyStageError(f"{path}.params: {error}") from error
