"""The table of live placements and queue orders: names and constructors.

A caller with more rules, such as the simulator, passes its own table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import msgspec

from routing.placements.cache_blind import LeastLoaded, RoundRobin
from routing.placements.central import Central
from routing.placements.consistent_hash import ConsistentHash
from routing.placements.dual_map import DualMap
from routing.placements.lbgr import Lbgr
from routing.placements.least_cost import LeastCost
from routing.placements.mooncake import Mooncake
from routing.placements.placement import Placement
from routing.placements.skywalker import SkyWalker
from routing.policy.policy_document import RoutingPolicy, Stage
from routing.queue.orders.fifo import Fifo
from routing.queue.orders.late_binding import LateBinding
from routing.queue.orders.late_last import LateLast
from routing.queue.orders.ranked_orders import Edf, Priority
from routing.queue.orders.slack import Slack
from routing.queue.queue_order import QueueOrder
from routing.values.prepared_struct import prepared

Table = Mapping[str, type[msgspec.Struct]]

PLACEMENTS: dict[str, type[msgspec.Struct]] = {
    "least_cost": LeastCost,
    "dual_map": DualMap,
    "round_robin": RoundRobin,
    "least_loaded": LeastLoaded,
    "mooncake": Mooncake,
    "lbgr": Lbgr,
    "consistent_hash": ConsistentHash,
    "skywalker": SkyWalker,
    "central": Central,
}

QUEUE_ORDERS: dict[str, type[msgspec.Struct]] = {
    "fifo": Fifo,
    "late_last": LateLast,
    "slack": Slack,
    "edf": Edf,
    "priority": Priority,
    "late_binding": LateBinding,
}

CENTRAL_PLACEMENT = "central"

NEAREST = {
    # Blind to caches and loads, as random is.
    "random": "round_robin",
    # By load alone, as power_of_two is.
    "power_of_two": "least_loaded",
    # By the start of the prompt, as cache_affinity is, but with a limit on each engine's load.
    "cache_affinity": "consistent_hash",
    # Without node managers it makes the same choices as min_ttft (Mooncake §4.1).
    "min_ttft": "mooncake",
}
"""Textbook rules that policies of schema 1 could name → the live rule that serves instead (decision 70)."""

# Named here, because a gateway that starts from disk may find one in its policy (decision 20).
BASELINES = frozenset(
    {
        *NEAREST,
        "preble",
        "sglang_cache_aware",
        "vllm_cache_aware",
        "dynamo_kv",
        "llmd_weighted",
        "aibrix_prefix",
        "production_stack_load_aware",
        "ray_prefix",
    }
)
"""Textbook rules and rules of other routers (simulator.baselines). Live pools cannot use them."""

STAGES: dict[str, dict[str, type[msgspec.Struct]]] = {"placement": PLACEMENTS, "order": QUEUE_ORDERS}
"""The table of each stage of a policy document, by the name of the document's field."""


def nearest_live(name: str) -> str:
    """Return the live placement that is closest to a baseline: for rules of other routers, the default placement."""
    return NEAREST.get(name, RoutingPolicy().placement.name)


def baseline_problem(name: str) -> str:
    """Return why no live policy can name this baseline, and which names it can use."""
    live = ", ".join(sorted(PLACEMENTS))
    return (
        f"{name!r} is a baseline for simulation and what-if only; use {nearest_live(name)!r}, the nearest of the live "
        f"ones: {live}"
    )


def pair_problem(placement: str, order: str, placements: Table = PLACEMENTS) -> str:
    """Return why this placement and order cannot be combined, in one sentence with its path. "" if they can.

    A placement that binds no request needs an order with pulling engines, and such an order needs all requests unbound.
    Unknown names are not reported here.
    """
    pulls = hasattr(QUEUE_ORDERS.get(order), "pool_queue")
    if placement == CENTRAL_PLACEMENT and order in QUEUE_ORDERS and not pulls:
        binding = ", ".join(name for name, kind in QUEUE_ORDERS.items() if hasattr(kind, "pool_queue"))
        return (
            f"order.name: {order!r} binds no request to an engine, and placement {placement!r} does not either; "
            f"orders that do: {binding}"
        )
    if pulls and placement in placements and placement != CENTRAL_PLACEMENT:
        return (
            f"placement.name: order {order!r} lets engines pull unbound requests, but {placement!r} binds them first; "
            f"use {CENTRAL_PLACEMENT!r}"
        )
    return ""


def stage_pairs(placements: Table = PLACEMENTS) -> list[tuple[str, str]]:
    """Return every valid combination of placement and order, in the order of the tables."""
    pairs = ((one, other) for one in placements for other in QUEUE_ORDERS)
    return [pair for pair in pairs if not pair_problem(*pair, placements)]


class PolicyStageError(ValueError):
    """A stage has an unknown name or invalid parameters. The message starts with the path."""


def build_placement(stage: Stage, placements: Table = PLACEMENTS) -> Placement:
    """Return the placement with this name. Raises PolicyStageError, which lists the known names."""
    return cast("Placement", _build(stage, placements, "placement"))


def build_queue_order(stage: Stage) -> QueueOrder:
    """Return the queue order with this name. Raises PolicyStageError, which lists the known names."""
    return cast("QueueOrder", _build(stage, QUEUE_ORDERS, "order"))


def stage_problems(policy: RoutingPolicy, placements: Table = PLACEMENTS) -> list[str]:
    """Return the problems of the policy's stages, one sentence with its path each, [] if there are none."""
    problems = []
    for path, stage, table in (("placement", policy.placement, placements), ("order", policy.order, QUEUE_ORDERS)):
        try:
            _build(stage, table, path)
        except PolicyStageError as error:
            problems.append(str(error))
    pair = pair_problem(policy.placement.name, policy.order.name, placements)
    return [*problems, pair] if pair else problems


def _build(stage: Stage, table: Table, path: str) -> msgspec.Struct:
    kind = table.get(stage.name)
    if kind is None and path == "placement" and stage.name in BASELINES:
        raise PolicyStageError(f"{path}.name: {baseline_problem(stage.name)}")
    if kind is None:
        raise PolicyStageError(f"{path}.name: {stage.name!r} is unknown; known are {', '.join(sorted(table))}")
    try:
        return msgspec.convert(stage.params, prepared(kind))
    except msgspec.ValidationError as error:
        raise PolicyStageError(f"{path}.params: {error}") from error
