"""The simulated engine that represents a pool's engines: its prefill and decode times, and its memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median_low

import msgspec
from msgspec.structs import replace

from controlplane.fleet.learned_costs import fitted_of
from controlplane.fleet.models.engine import DesiredState, Engine
from controlplane.fleet.models.learned_cost import LearnedCost
from controlplane.fleet.models.pool import Pool
from controlplane.kv_nodes.models.kv_node import LIVE, KvNode
from controlplane.platform.bus import get_bus
from gateway.bus.bus import Bus
from gateway.contracts.engine_report import TOPIC_PREFIX, decode_report
from gateway.contracts.wire import UnreadableMessageError
from routing.cost.cost_fit import TRUSTED_SAMPLES, FittedCost
from routing.cost.cost_model import DecodeCost, PrefillCost
from routing.policy.cost_document import DecodeCostDocument
from routing.policy.policy_document import PrefillCostDocument, RoutingPolicy
from routing.values.prepared_struct import prepared
from simulator.engine_models.engine_profile import EngineProfile
from simulator.kv_nodes.kv_nodes_spec import KvNodesSpec
from simulator.workloads.trace import BLOCK_TOKENS

LEARNED, LEARNED_PREFILL, WRITTEN = "learned", "learned_prefill", "written"


@dataclass(frozen=True, slots=True)
class EngineCandidate:
    """One simulated engine, and the source of its figures."""

    profile: EngineProfile
    costs: str
    """LEARNED from requests' times, LEARNED_PREFILL from prefills only, or WRITTEN in the policy."""
    kv_tokens: int | None
    """Cache capacity reported by the engines; None: unknown, the profile's default applies."""
    engine_model: str
    """How it mixes prefill and decode: a name in simulator.engine_models."""


@dataclass(frozen=True, slots=True)
class PoolEngines:
    """What is known of a pool's engines."""

    engines: Sequence[Engine]
    learned: Mapping[str, FittedCost]
    """Learned costs by kind."""
    kv_tokens: int | None
    kv_nodes: KvNodesSpec | None
    """Stand-ins for the KV nodes that they use."""

    @property
    def ready(self) -> int:
        """Return the number of engines that should serve."""
        return sum(engine.desired_state == DesiredState.READY for engine in self.engines)


def pool_engines(pool: Pool) -> PoolEngines:
    """Read what is known of the pool's engines."""
    engines = list(Engine.objects.filter(pool=pool).order_by("engine_id"))
    return PoolEngines(
        engines=engines,
        learned={cost.kind: fitted_of(cost) for cost in LearnedCost.objects.filter(pool=pool)},
        kv_tokens=reported_kv_tokens(get_bus(), [engine.engine_id for engine in engines]),
        kv_nodes=stand_in_nodes(engines, pool.block_tokens) if pool.key_source == "exact" else None,
    )


def engine_candidates(
    policy: RoutingPolicy, learned: Mapping[str, FittedCost], kv_tokens: int | None, models: Sequence[str]
) -> tuple[EngineCandidate, ...]:
    """Return simulated engines that may behave like the pool's, most likely first: all combinations of costs and
    models.
    """
    costs = _by_costs(policy, learned, kv_tokens)
    return tuple(EngineCandidate(*cost, kv_tokens, model) for cost in costs for model in models)


def _by_costs(
    policy: RoutingPolicy, learned: Mapping[str, FittedCost], kv_tokens: int | None
) -> tuple[tuple[EngineProfile, str], ...]:
    written = _profile(PrefillCost.of(policy.prefill_cost), DecodeCost.of(policy.decode_cost), kv_tokens), WRITTEN
    fitted = learned.get("") or next(iter(learned.values()), None)
    if fitted is None or fitted.samples < TRUSTED_SAMPLES:
        return (written,)
    # A decode step's time is learned while prefills run between steps, so it may include a part of theirs.
    mixed = _profile(fitted.prefill, DecodeCost.of(policy.decode_cost), kv_tokens), LEARNED_PREFILL
    known = ((_profile(fitted.prefill, fitted.decode, kv_tokens), LEARNED),) if fitted.decode else ()
    return (mixed, *known, written) if fitted.better else (written, mixed, *known)


def _profile(prefill: PrefillCost, decode: DecodeCost, kv_tokens: int | None) -> EngineProfile:
    profile = EngineProfile(
        prefill_base_s=prefill.base_s,
        prefill_per_token_s=prefill.per_token_s,
        prefill_per_token_squared_s=prefill.per_token_squared_s,
        prefill_per_hit_token_s=prefill.per_hit_token_s,
        step_base_s=max(decode.base_s, 1e-6),
        step_per_sequence_s=decode.per_sequence_s,
        step_per_context_token_s=decode.per_context_token_s,
        recompute_last_block=True,
    )
    if kv_tokens is None:
        return profile
    # Running requests have that memory too: without a figure of their own they would get the simulator's default.
    return replace(profile, num_blocks=min(max(1, kv_tokens // BLOCK_TOKENS), 10_000_000), device_tokens=kv_tokens)


def as_it_would_route(policy: RoutingPolicy, learned: Mapping[str, FittedCost]) -> RoutingPolicy:
    """Return the policy with the costs that it uses on the live fleet: the learned costs, if it follows them."""
    fitted = learned.get("") or next(iter(learned.values()), None)
    if policy.cost != "fitted" or fitted is None or not fitted.better:
        return policy
    prefill = msgspec.convert(fitted.prefill, prepared(PrefillCostDocument), from_attributes=True)
    if fitted.decode is None:
        return replace(policy, prefill_cost=prefill)
    decode = msgspec.convert(fitted.decode, prepared(DecodeCostDocument), from_attributes=True)
    return replace(policy, prefill_cost=prefill, decode_cost=decode)


def reported_kv_tokens(bus: Bus, engine_ids: list[str]) -> int | None:
    """Return the median cache capacity in the engines' newest reports; None if it is not reported."""
    sizes = []
    for engine_id in engine_ids:
        value = bus.latest(f"{TOPIC_PREFIX}{engine_id}")
        if value is None:
            continue
        try:
            report = decode_report(value)
        except UnreadableMessageError:
            continue
        if report.kv_tokens:
            sizes.append(report.kv_tokens)
    return sorted(sizes)[len(sizes) // 2] if sizes else None


def stand_in_nodes(engines: Sequence[Engine], block_tokens: int) -> KvNodesSpec | None:
    """Return identical nodes with the median size of the pool's nodes; None if its engines use no node.

    A slot holds one block. Link and disk speeds are those of the simulator: 100 Gbit/s, with a 7B model's KV.
    """
    names = {engine.kv_node for engine in engines if engine.kv_node}
    nodes = {node.name: node for node in KvNode.objects.filter(name__in=names, state__in=LIVE)}
    if not nodes:
        return None
    numbers = {name: number for number, name in enumerate(sorted(nodes))}
    return KvNodesSpec(
        nodes=len(nodes),
        dram_tokens=_median_tokens(nodes, "dram_bytes", block_tokens),
        ssd_tokens=_median_tokens(nodes, "ssd_bytes", block_tokens),
        homes=tuple(numbers.get(engine.kv_node, -1) for engine in engines),
    )


def _median_tokens(nodes: Mapping[str, KvNode], size: str, block_tokens: int) -> int:
    return median_low(getattr(node, size) // max(1, node.slot_bytes) * block_tokens for node in nodes.values())
