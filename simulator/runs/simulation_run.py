"""One run of one policy over one workload: its specification and its execution."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from planning.facts.fleet_facts import Role
from routing.policy.dispatch_limit_document import DispatchLimitDocument
from routing.policy.policy_document import RoutingPolicy, Stage
from routing.registry import Table
from routing.router import Router
from routing.trials.arms import ArmEntry
from simulator.baselines.registry import PLACEMENTS
from simulator.engine_models.engine_profile import EngineProfile
from simulator.engine_models.registry import build_engine
from simulator.fleet.block_transfer import BlockTransfers
from simulator.fleet.disaggregated_fleet import DisaggregatedFleet
from simulator.fleet.fleet_changes import FleetChange
from simulator.fleet.fleet_simulation import FleetSimulation, Watch
from simulator.fleet.load_samples import LoadSamples
from simulator.fleet.request_record import EventLog
from simulator.fleet.several_gateways import SharedPoolSimulation
from simulator.kv_nodes.fleet_nodes import FleetNodes
from simulator.kv_nodes.kv_nodes_spec import KvNodesSpec
from simulator.workloads.arrival_pattern import ArrivalPattern
from simulator.workloads.arrivals import ArrivalSource
from simulator.workloads.prepared_workload import Workload

OWNER_RTT_S = 0.0005
"""Assumed round trip between two machines of one data center; not measured."""


class RunSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The specification of one run, without its workload."""

    policy: RoutingPolicy
    engines: int = 8
    prefill: int = 0
    """Number of prefill engines; the others decode. 0 if every engine does both."""
    qps: float | None = None
    """Mean arrivals per second; None for the recorded rate, or for the rate of a closed loop's clients."""
    arrivals: ArrivalPattern = ArrivalPattern()
    warmup: int = 0
    """Number of initial requests that no metric counts."""
    engine_model: str = "reference"
    profile: EngineProfile = msgspec.field(default_factory=EngineProfile)
    slo_tpot_s: float | None = None
    """Maximum mean time between a request's tokens that counts as on time."""
    counted_slo_s: float | None = None
    """TTFT in seconds up to which requests count as on time; None for the policy's objective."""
    seed: int = 0
    report_age_s: float = 0.0
    """Delay of the engines' load reports to the router; its own dispatches are counted immediately."""
    sample_every_s: float = 1.0
    transfers: bool = False
    """Whether engines fetch KV blocks from each other if a placement requests it; no live pool does this."""
    kv_nodes: KvNodesSpec | None = None
    """Node managers that store computed blocks; None for none."""
    keep_series: bool = False
    """Whether to keep the in-flight tokens of each sample."""
    keep_quantiles: bool = False
    """Whether to report the full distribution of times to first token."""
    changes: tuple[FleetChange, ...] = ()
    gateways: int = 1
    """Number of gateways that share the pool."""
    owner: bool = True
    """Whether one of the gateways decides for all of them."""
    owner_rtt_s: float = OWNER_RTT_S
    """Round trip between a gateway and the gateway that decides."""
    arms: tuple[ArmEntry, ...] = ()
    """Placements besides the policy's, each with a share of the sessions."""


def evaluation_policy(
    placement: Stage, order: Stage, *, ttft_slo_s: float = 5.0, profile: EngineProfile | None = None
) -> RoutingPolicy:
    """Return a policy with the scheduling study's settings (§1): one prefill at a time, no limits, exact estimates."""
    return RoutingPolicy(
        placement=placement,
        order=order,
        ttft_slo_s=ttft_slo_s,
        prefill_cost=(profile if profile is not None else EngineProfile()).prefill_cost,
        # Any prompt fills it, so an engine has one prefill at a time.
        prefill_window_tokens=1,
        lookahead_s=0.0,
        queue_limit=1_000_000,
        max_wait_s=3600.0,
        reservation_ttl_s=86_400.0,
        # Reports are fresh here; their age only sets when an engine that one holds back is checked again.
        dispatch_limit=DispatchLimitDocument(report_ttl_s=1.0),
    )


def engine_names(count: int) -> list[str]:
    """Return the engines' ids in order."""
    return [f"e-{number:03}" for number in range(1, count + 1)]


def roles_of(spec: RunSpec) -> dict[str, Role]:
    """Return each engine's role by its id, in a fleet with roles."""
    return {
        name: "prefill" if number < spec.prefill else "decode" for number, name in enumerate(engine_names(spec.engines))
    }


def engine_profiles(profile: EngineProfile, seed: int) -> Iterator[EngineProfile]:
    """Yield an endless sequence of profiles, one per engine, that differ only in the seed of random evictions."""
    # Not the router's generator, whose draws must not depend on the eviction rule.
    rng = random.Random(f"{seed}:{profile.eviction_seed}:eviction")
    while True:
        yield profile if profile.eviction == "lru" else replace(profile, eviction_seed=rng.getrandbits(63))


def simulation_of(
    spec: RunSpec,
    workload: Workload,
    *,
    source: ArrivalSource | None = None,
    log: EventLog | None = None,
    placements: Table = PLACEMENTS,
) -> FleetSimulation:
    """Return the run, ready to start; raise PolicyStageError or UnknownEngineModelError if it cannot run."""
    arrivals = workload.arrivals(spec.qps, spec.policy.ttft_slo_s)
    profile = spec.profile
    profiles = engine_profiles(profile, spec.seed)
    transfers = BlockTransfers(profile.kv_bytes_per_token, profile.link_bytes_per_s) if spec.transfers else None
    router, *others = (
        Router("simulation", spec.policy, 1, seed=spec.seed, placements=placements) for _ in range(spec.gateways)
    )
    router.arms.attempt(router.arms.built(spec.arms, spec.policy.order.name))
    incoming = source if source is not None else spec.arrivals.source(arrivals, spec.qps, spec.seed)
    kv_nodes = spec.kv_nodes
    options: dict[str, Any] = {
        "changes": spec.changes,
        "transfers": transfers,
        "samples": LoadSamples(spec.sample_every_s, keep=spec.keep_series),
        "uncounted": spec.warmup,
        "report_age_s": spec.report_age_s,
        "log": log,
    }
    if spec.prefill:
        return DisaggregatedFleet(router, incoming, profile, roles_of(spec), **options)
    nodes = None if kv_nodes is None else lambda at: FleetNodes(kv_nodes, profile, at)
    engines = (lambda: build_engine(spec.engine_model, next(profiles))), engine_names(spec.engines)
    fleet = router, incoming, *engines
    if others:
        rtt_s = spec.owner_rtt_s if spec.owner else None
        return SharedPoolSimulation(*fleet, others=others, rtt_s=rtt_s, seed=spec.seed, nodes=nodes, **options)
    return FleetSimulation(*fleet, nodes=nodes, **options)


def run(spec: RunSpec, workload: Workload, watch: Watch | None = None) -> FleetSimulation:
    """Run to the end, or until `watch` stops it; return the simulation with its records."""
    simulation = simulation_of(spec, workload)
    simulation.run(watch)
    return simulation
