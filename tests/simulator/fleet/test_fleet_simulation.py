from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routing.policy.policy_document import Stage
from routing.registry import stage_pairs
from routing.router import Router
from routing.values.load_cv import LoadSmoother, load_cv
from simulator.baselines.registry import PLACEMENTS
from simulator.engine_models.engine_profile import EngineProfile
from simulator.engine_models.registry import ENGINE_MODELS
from simulator.fleet.engine_slots import UnknownSlotError
from simulator.fleet.fleet_changes import EngineDies, EngineDrains, EngineJoins, PolicyChanges
from simulator.fleet.fleet_simulation import Watch
from simulator.fleet.load_samples import LoadSamples
from simulator.fleet.request_record import FAILED, FINISHED, REJECTED
from simulator.runs.simulation_run import RunSpec, evaluation_policy, simulation_of
from tests.routing.pools import pool, request
from tests.simulator.engine_models.random_work import chained
from tests.simulator.fleets import chat, row, simulated, spec

PREFILL_S = EngineProfile().prefill_s(1024, 0)


def ttfts(rows: list, run_spec: RunSpec | None = None) -> list[float | None]:
    return [record.ttft_s for record in simulated(rows, run_spec)[0].history]


def until(at_s: float) -> Watch:
    return lambda simulation: simulation.now > at_s


def test_one_engine_serves_requests_one_after_another() -> None:
    rows = [row(0, (1, 2)), row(0, (3, 4)), row(0, (5, 6))]
    assert ttfts(rows, spec(engines=1)) == pytest.approx([PREFILL_S, 2 * PREFILL_S, 3 * PREFILL_S])


def test_two_engines_serve_two_requests_concurrently() -> None:
    assert ttfts([row(0, (1, 2)), row(0, (3, 4))]) == pytest.approx([PREFILL_S, PREFILL_S])


def test_a_later_request_hits_the_blocks_of_an_earlier_one() -> None:
    simulation, _ = simulated([row(0, (1, 2)), row(10, (1, 2, 3))])
    first, second = simulation.history
    assert second.engine_id == first.engine_id
    assert (first.hit_tokens, second.hit_tokens) == (0, 1024)
    assert second.ttft_s == pytest.approx(EngineProfile().prefill_s(1536, 1024))


def test_the_routers_predictions_equal_the_results() -> None:
    workload = chat()
    simulation = simulation_of(spec(engines=4, qps=6.0), workload)
    while simulation.unfinished or len(simulation.history) < len(workload):
        simulation.run(until(simulation.now + 5))
        view, now = simulation.router.view, simulation.now
        for target in view.roster.accepting:
            station = simulation.stations.of(view.roster.engine_ids[target])
            if station.engine.running and not simulation.router.waiting.has(target):
                assert view.load.ready_at[target] == pytest.approx(station.engine.next_event_time(), abs=1e-6)
    assert now > 0


@pytest.mark.parametrize("model", sorted(ENGINE_MODELS))
def test_the_same_seed_produces_the_same_events(model: str) -> None:
    workload = chat(120)
    rows = [msgspec.structs.replace(item, output_length=min(item.output_length, 40)) for item in workload.rows]
    run_spec = spec("least_cost", "slack", engines=3, qps=5.0, engine_model=model)
    first, second = simulated(rows, run_spec)[1], simulated(rows, run_spec)[1]
    assert first.digest() == second.digest()
    other = simulated(rows, msgspec.structs.replace(run_spec, qps=5.5))[1]
    assert other.digest() != first.digest()


@pytest.mark.parametrize(("placement", "order"), sorted(stage_pairs(PLACEMENTS)))
def test_every_policy_serves_all_requests_in_overload(placement: str, order: str) -> None:
    simulation = simulation_of(spec(placement, order, engines=3, qps=12.0), chat(150))
    simulation.run()
    simulation.check()
    assert all(record.status == FINISHED for record in simulation.history)
    assert len(simulation.history) == 150


def test_a_full_queue_rejects_requests() -> None:
    policy = msgspec.structs.replace(spec().policy, queue_limit=1)
    rows = [row(0, (number, number + 1)) for number in range(0, 12, 2)]
    simulation, log = simulated(rows, RunSpec(policy=policy, engines=2))
    rejected = [record for record in simulation.history if record.status == REJECTED]
    assert len(rejected) == 3
    assert any("rejected:queue_full" in line for line in log.lines)


def test_a_prompt_larger_than_the_cache_fails_and_blocks_no_other() -> None:
    run_spec = spec(engines=1, profile=EngineProfile(num_blocks=4))
    simulation, _ = simulated([row(0, range(6)), row(0, (8, 9))], run_spec)
    assert [record.status for record in simulation.history] == [FAILED, FINISHED]


def test_requests_of_a_dead_engine_are_placed_again() -> None:
    rows = [row(0, (number, number + 1)) for number in range(0, 12, 2)]
    simulation, _ = simulated(rows, changes=[EngineDies(0.05, "e-001")])
    assert all(record.status == FINISHED for record in simulation.history)
    assert {record.engine_id for record in simulation.history} == {"e-002"}


def test_a_partly_answered_request_of_a_dead_engine_fails() -> None:
    run_spec = spec(engines=1, engine_model="colocated")
    changes = [EngineDies(1.0, "e-001"), EngineJoins(2.0, "e-001")]
    simulation, _ = simulated([row(0, (1,), output=500), row(0.5, (2,)), row(1.5, (3,))], run_spec, changes=changes)
    assert [record.status for record in simulation.history] == [FAILED, FINISHED, FINISHED]


def test_a_returning_engine_has_an_empty_cache() -> None:
    changes = [EngineDies(5.0, "e-001"), EngineJoins(6.0, "e-001")]
    simulation, _ = simulated([row(0, (1, 2)), row(10, (1, 2))], spec(engines=1), changes=changes)
    assert [record.hit_tokens for record in simulation.history] == [0, 0]


def test_a_drained_engine_finishes_its_requests_and_accepts_none() -> None:
    simulation, _ = simulated(
        [row(0, (1, 2)), row(0, (3, 4)), row(1, (1, 2)), row(1, (3, 4))], changes=[EngineDrains(0.05, "e-001")]
    )
    assert [record.status for record in simulation.history] == [FINISHED] * 4
    assert [record.engine_id for record in simulation.history[2:]] == ["e-002"] * 2


def test_an_engine_that_joins_gets_work() -> None:
    rows = [row(at / 10, (at * 2, at * 2 + 1)) for at in range(20)]
    simulation, _ = simulated(rows, spec(engines=1), changes=[EngineJoins(0.5, "e-009")])
    assert "e-009" in {record.engine_id for record in simulation.history}


def test_requests_wait_while_there_is_no_engine() -> None:
    changes = [EngineDies(0.5, "e-001"), EngineJoins(3.0, "e-002")]
    simulation, _ = simulated([row(0, (9,)), row(1, (1, 2)), row(2, (3, 4))], spec(engines=1), changes=changes)
    assert [record.engine_id for record in simulation.history] == ["e-001", "e-002", "e-002"]
    assert [record.dispatched_s for record in simulation.history[1:]] == pytest.approx([3.0, 3.0 + PREFILL_S])


def test_requests_are_rejected_if_no_engine_joins_in_time() -> None:
    simulation, _ = simulated([row(0, (9,)), row(1, (1, 2))], spec(engines=1), changes=[EngineDies(0.5, "e-001")])
    assert [record.status for record in simulation.history] == [FINISHED, REJECTED]


def test_waiting_requests_are_rejected_in_time_while_others_keep_arriving() -> None:
    rows = [row(at, (at,)) for at in range(30)]
    simulation, log = simulated(rows, spec(engines=1), changes=[EngineDies(0.5, "e-001")])
    rejected = {line.split()[2]: float(line.split()[0]) for line in log.lines if "rejected" in line}
    assert len(rejected) == 29
    for record in simulation.history[1:]:
        assert rejected[record.request.request_id] == pytest.approx(record.request.arrived_s + 10, abs=0.01)


def test_a_policy_can_change_during_the_run() -> None:
    later = evaluation_policy(Stage(name="round_robin"), Stage(name="fifo"))
    rows = [row(at, (1, 2)) for at in range(8)]
    simulation, _ = simulated(rows, changes=[PolicyChanges(3.5, later)])
    engines = [record.engine_id for record in simulation.history]
    assert len(set(engines[:4])) == 1
    assert len(set(engines[4:])) == 2


def test_a_change_of_an_unknown_engine_is_an_error() -> None:
    with pytest.raises(UnknownSlotError, match="e-077"):
        simulated([row(0, (1,)), row(5, (2,))], changes=[EngineDrains(1.0, "e-077")])


def test_fetched_blocks_arrive_before_the_prefill_and_stay() -> None:
    # Both engines hold nothing; the first request fills one, the burst that follows overloads it.
    rows = [row(0, range(40)), *(row(10, (*range(40), 100 + number)) for number in range(8))]
    simulation, log = simulated(rows, spec("mooncake", engines=4, transfers=True))
    moved = [record for record in simulation.history if record.transferred_tokens]
    assert moved
    assert all(record.transferred_tokens == 40 * 512 == record.hit_tokens for record in moved)
    assert all((record.ttft_s or 0) > 40 * 512 * 57_344 / 12.5e9 for record in moved)
    assert sum("landed" in line for line in log.lines) == len(moved)


def test_engines_without_transfers_compute_as_in_a_live_pool() -> None:
    rows = [row(0, range(40)), *(row(10, (*range(40), 100 + number)) for number in range(8))]
    runs = [simulated(rows, spec(name, engines=4))[0].history for name in ("mooncake", "min_ttft")]
    results = [[(item.engine_id, item.ttft_s, item.transferred_tokens) for item in run] for run in runs]
    assert results[0] == results[1]


@given(seed=st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_under_random_fleet_changes_every_request_ends_once(seed: int) -> None:
    rng = Random(seed)
    rows = [
        row(at * 0.1, chained([rng.randrange(3) for _ in range(rng.randrange(1, 9))]), rng.randrange(1, 30))
        for at in range(60)
    ]
    names = ["e-001", "e-002", "e-003"]
    changes: list = [EngineDies(rng.uniform(0, 6), name) for name in names if rng.random() < 0.5]
    changes += [EngineJoins(rng.uniform(6, 8), name) for name in names]
    run_spec = spec(
        rng.choice(["least_cost", "mooncake", "dual_map"]),
        rng.choice(["fifo", "slack"]),
        engines=3,
        engine_model=rng.choice(["reference", "colocated", "chunked"]),
        transfers=rng.random() < 0.5,
    )
    simulation, log = simulated(rows, run_spec, changes=changes)
    assert len(simulation.history) == 60
    assert simulation.unfinished == 0
    ended = ("finished", "failed", "rejected")
    ends = [line.split()[2] for line in log.lines if line.split()[1].partition(":")[0] in ended]
    assert len(ends) == len(set(ends)) == 60
    assert len(simulation.router.in_flight) == 0
    assert len(simulation.router.reservations) == 0


def sampled(*loads: list[int], every_s: float = 60.0) -> LoadSamples:
    """Sample a fleet at long intervals; each load lists the pending tokens per engine."""
    samples = LoadSamples(keep=True)
    router: Router = pool(size=4)
    for number, pending in enumerate(loads):
        router.view.load.in_flight_tokens[:] = pending
        samples.take(router.view, number * every_s)
    return samples


def test_an_idle_fleet_counts_as_even() -> None:
    assert sampled([0, 0, 0, 0]).mean_cv == 0.0
    assert LoadSamples().mean_cv == 0.0


def test_one_of_four_with_all_the_work_has_a_cv_of_root_three() -> None:
    assert sampled([8_000, 0, 0, 0]).mean_cv == pytest.approx(3**0.5)


def test_the_mean_is_over_samples_and_the_series_keeps_each_engine() -> None:
    samples = sampled([50_000] * 4, [8_000, 0, 0, 0])
    assert samples.mean_cv == pytest.approx(3**0.5 / 2, rel=1e-3)
    assert samples.series == [(0.0, [50_000] * 4), (60.0, [8_000, 0, 0, 0])]


def test_the_mean_cv_equals_the_gateways_load_cv() -> None:
    loads = [[8_000, 0, 500, 0], [0, 9_000, 500, 0], [4_000, 4_000, 0, 0]]
    smoother, shown = LoadSmoother(), []
    for second, pending in enumerate(loads):
        shown.append(load_cv(smoother.update({str(at): float(tokens) for at, tokens in enumerate(pending)}, second)))
    assert sampled(*loads, every_s=1.0).mean_cv == pytest.approx(sum(shown) / 3)


def test_engines_that_accept_no_work_do_not_count() -> None:
    router = pool(size=2)
    router.place(request(1), 0.0)
    router.set_engines([], 0.0)
    samples = LoadSamples()
    samples.take(router.view, 0.0)
    assert samples.mean_cv == 0.0


def test_an_interval_of_zero_is_rejected() -> None:
    with pytest.raises(ValueError, match="above 0"):
        LoadSamples(0.0)
