"""The pooled reference: one server as fast as the whole fleet, with one cache as large as all of theirs.

It needs no routing, so what it reaches under an order shows what placement costs; it is a heuristic
reference, not a strict bound (research on scheduling §3).
"""

from __future__ import annotations

import msgspec

from routing.policy.policy_document import Stage
from simulator.engine_models.engine_profile import EngineProfile
from simulator.runs.simulation_run import RunSpec, cost_of

INFINITE_BLOCKS = 10_000_000


def pooled(spec: RunSpec, *, infinite_cache: bool = False) -> RunSpec:
    """Return the run of the pooled server that stands for `spec`'s fleet, in the same order."""
    profile = pooled_profile(spec.profile, spec.engines)
    if infinite_cache:
        profile = msgspec.structs.replace(profile, num_blocks=INFINITE_BLOCKS)
    policy = msgspec.structs.replace(spec.policy, placement=Stage(name="round_robin"), prefill_cost=cost_of(profile))
    return msgspec.structs.replace(spec, policy=policy, engines=1, profile=profile)


def pooled_profile(profile: EngineProfile, engines: int) -> EngineProfile:
    """Return the profile with all prefill times divided by the engines, and all their blocks."""
    return msgspec.structs.replace(
        profile,
        prefill_base_s=profile.prefill_base_s / engines,
        prefill_per_token_s=profile.prefill_per_token_s / engines,
        prefill_per_token_squared_s=profile.prefill_per_token_squared_s / engines,
        prefill_per_hit_token_s=profile.prefill_per_hit_token_s / engines,
        num_blocks=profile.num_blocks * engines,
    )
