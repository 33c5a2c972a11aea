from __future__ import annotations

from itertools import islice

from simulator.engine_models.engine_profile import EngineProfile
from simulator.runs.simulation_run import engine_profiles, run
from simulator.workloads.prepared_workload import Workload
from simulator.workloads.registry import generate_workload
from tests.simulator.fleets import spec


def test_engines_of_one_fleet_have_different_random_seeds() -> None:
    profile = EngineProfile(eviction="rlt", num_blocks=7)
    one, again, other = (
        [engine_profile.eviction_seed for engine_profile in islice(engine_profiles(profile, seed), 4)]
        for seed in (1, 1, 2)
    )
    assert len(set(one)) == 4
    assert one == again
    assert not set(one) & set(other)
    assert {engine_profile.num_blocks for engine_profile in islice(engine_profiles(profile, 1), 4)} == {7}


def test_engines_without_randomness_share_one_profile() -> None:
    profile = EngineProfile()
    assert all(engine_profile is profile for engine_profile in islice(engine_profiles(profile, 1), 3))


def hits(profile: EngineProfile) -> list[int | None]:
    groups = Workload(generate_workload("gsp", seed=1, settings={"groups": 12, "prompts": 8}))
    return [record.hit_tokens for record in run(spec(profile=profile, seed=3), groups).history]


def test_a_fleet_with_random_eviction_has_reproducible_hits() -> None:
    by_chance = EngineProfile(eviction="rlt", num_blocks=40)
    assert hits(by_chance) == hits(by_chance) != hits(EngineProfile(num_blocks=40))
