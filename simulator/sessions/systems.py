"""The systems to compare: the policy of the router, where KV caches are stored, and how engines load them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from routing.advisories.advised_routing import AdvisedRouting
from routing.ledger.fleet_view import EngineFacts
from routing.ledger.node_loads import NodeLoads
from routing.policy.dispatch_limit_document import BLIND, DispatchLimitDocument
from routing.policy.policy_document import (
    GATED,
    OFF,
    SYMPHONY,
    AdvisoryRule,
    PrefillCostDocument,
    RoutingPolicy,
    Stage,
)
from routing.registry import Table
from routing.router import Router
from simulator.baselines.registry import PLACEMENTS
from simulator.baselines.textbook_rules import FewestRequests
from simulator.engine_models.engine_profile import EngineProfile
from simulator.sessions.sticky_sessions import StickySessions

Store = Literal["none", "host", "tiers", "remote"]
_PLACEMENTS: Table = {**PLACEMENTS, "fewest_requests": FewestRequests}
_LONGEST_WAIT_S = 3600.0
_MOST_QUEUED = 1_000_000


class System(msgspec.Struct, frozen=True, kw_only=True):
    """One system: its routing policy, and the mechanisms of its engines and nodes."""

    placement: str
    store: Store
    """Where caches are stored: nowhere; the node's DRAM; DRAM and disk of all nodes; an unlimited remote store."""
    advisories: AdvisoryRule = OFF
    sticky: bool = False
    """Whether sessions stay on their last engine, with or without an advisory; needs the rule `symphony`."""
    ordered: bool = False
    """Whether Headway runs it: requests queue at the gateway, and engines load what the decision names unless computing
    would be faster. Otherwise requests queue at engines, which load every cache that they can reach.
    """
    blocking: bool = False
    """Whether a request joins the batch at once, and the batch waits in its step for the request's cache."""
    prefetches: bool = False
    """Whether nodes load the cache of an announced session into the memory of its engine."""
    migrates: bool = False
    """Whether running requests move between engines if their counts differ."""
    compressed: bool = False
    """Whether caches are 3.5 times smaller below engine memory, and decompressed within the step."""
    memory_order: str = "layers"
    """Which prefetched caches are purged from engine memory first: later layers, or the oldest."""
    pinned: bool = False
    """Whether prefetched caches keep requests out of engine memory while other requests run."""
    layerwise: bool = True

    def policy(self, profile: EngineProfile) -> RoutingPolicy:
        """Return the policy of its router for engines of this profile."""
        policy = RoutingPolicy(
            placement=Stage(name=self.placement),
            advisories=self.advisories,
            prefill_cost=PrefillCostDocument(
                base_s=profile.step_base_s,
                per_token_s=profile.prefill_per_token_s,
                per_token_squared_s=profile.prefill_per_token_squared_s,
                per_hit_token_s=profile.step_per_context_token_s,
            ),
            decode_cost=profile.decode_cost,
            # Clients wait for their answers, however long.
            max_wait_s=_LONGEST_WAIT_S,
            queue_limit=_MOST_QUEUED,
            reservation_ttl_s=_LONGEST_WAIT_S,
        )
        if self.ordered:
            return policy
        blind = DispatchLimitDocument(mode=BLIND)
        return msgspec.structs.replace(policy, order=Stage(name="fifo"), dispatch_limit=blind)


_ON_DEMAND = System(placement="least_cost", store="tiers", ordered=True)
_SYMPHONY = System(placement="fewest_requests", store="tiers", advisories=SYMPHONY, blocking=True, prefetches=True)
_STICKY = System(placement="fewest_requests", store="host", advisories=SYMPHONY, sticky=True)
_replace = msgspec.structs.replace

SYSTEMS: dict[str, System] = {
    "ours": _replace(_ON_DEMAND, advisories=GATED),
    "ondemand": _ON_DEMAND,
    "ondemand_load": _replace(_ON_DEMAND, ordered=False),
    "ondemand_requests": System(placement="fewest_requests", store="tiers"),
    "symphony": _SYMPHONY,
    "symphony_async": _replace(_ON_DEMAND, advisories=SYMPHONY),
    "symphony_pinned": _replace(_SYMPHONY, pinned=True),
    "symphony_oldest_first": _replace(_SYMPHONY, memory_order="oldest"),
    "symphony_whole_loads": _replace(_SYMPHONY, layerwise=False),
    "sticky": _STICKY,
    "migrate": _replace(_STICKY, migrates=True),
    "lossy_store": System(placement="fewest_requests", store="remote", blocking=True, compressed=True),
    "recompute": System(placement="fewest_requests", store="none"),
}


def system_named(name: str, *, compressed: bool = False) -> System:
    """Return a system of the table; with `compressed`, its caches are smaller below engine memory."""
    if name not in SYSTEMS:
        raise ValueError(f"no system is named {name!r}; there are {', '.join(SYSTEMS)}")
    system = SYSTEMS[name]
    return _replace(system, compressed=True) if compressed else system


def router_of(system: System, profile: EngineProfile, engine_ids: Sequence[str], nodes: NodeLoads) -> Router:
    """Return the decision chain of a system: one pool with these engines, which load from these nodes."""
    advised = StickySessions if system.sticky else AdvisedRouting
    router = Router("sessions", system.policy(profile), 1, placements=_PLACEMENTS, advised=advised)
    router.set_engines([EngineFacts(engine_id, 1, accepts=True) for engine_id in engine_ids], 0.0)
    if system.store in {"host", "tiers"}:
        router.follow_nodes(nodes)
    return router
