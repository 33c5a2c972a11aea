"""The one table of placements and queue orders, from their names to their constructors."""

from __future__ import annotations

from typing import cast

import msgspec

from routing.placement import Placement
from routing.placements.dual_map import DualMap
from routing.placements.least_cost import LeastCost
from routing.placements.least_loaded import LeastLoaded
from routing.placements.round_robin import RoundRobin
from routing.policy_document import RoutingPolicy, Stage
from routing.queue_order import QueueOrder
from routing.queue_orders.fifo import Fifo
from routing.queue_orders.shed import Shed

PLACEMENTS: dict[str, type[msgspec.Struct]] = {
    "round_robin": RoundRobin,
    "least_loaded": LeastLoaded,
    "dual_map": DualMap,
    "least_cost": LeastCost,
}

QUEUE_ORDERS: dict[str, type[msgspec.Struct]] = {
    "fifo": Fifo,
    "shed": Shed,
}

STAGES: dict[str, dict[str, type[msgspec.Struct]]] = {"placement": PLACEMENTS, "order": QUEUE_ORDERS}
"""The table behind each stage of a policy document, by the name of the document's field."""


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
    return problems


def _build(stage: Stage, table: dict[str, type[msgspec.Struct]], path: str) -> msgspec.Struct:
    kind = table.get(stage.name)
    if kind is None:
        raise PolicyStageError(f"{path}.name: {stage.name!r} is unknown; known are {', '.join(sorted(table))}")
    try:
        return msgspec.convert(stage.params, kind)
    except msgspec.ValidationError as error:
        raise PolicyStageError(f"{path}.params: {error}") from error
