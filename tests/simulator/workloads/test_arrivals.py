"""Moved requests keep their order and their contents, and equal seeds move them equally."""

from itertools import islice, pairwise
from random import Random
from statistics import mean, pstdev

import msgspec
import pytest

from simulator.runs.simulation_run import simulation_of
from simulator.workloads.arrival_pattern import ArrivalPattern, jittered_arrivals, poisson_arrivals, poisson_times
from simulator.workloads.arrivals import FixedArrivals, arrivals_of, heads_of_rows, keys_of_rows, scaled_times
from simulator.workloads.conversation_like import generate
from simulator.workloads.prepared_workload import Workload
from tests.simulator.fleets import BLOCK, chat, row, spec
from tests.simulator.kept_event_log import KeptEventLog


def test_rows_arrive_at_the_mean_rate_in_the_rhythm_of_the_trace() -> None:
    rows = [row(10, ()), row(11, ()), row(14, ()), row(20, ())]
    assert scaled_times(rows, 2.0) == pytest.approx([0.0, 0.2, 0.8, 2.0])
    assert scaled_times(rows, None) == [0.0, 1.0, 4.0, 10.0]


def test_rows_of_equal_time_are_spread_evenly() -> None:
    assert scaled_times([row(5, ())] * 3, 2.0) == [0.0, 0.5, 1.0]


def test_a_limit_truncates_prompt_and_blocks() -> None:
    rows = [row(0, range(5), tokens=4 * BLOCK + 7)]
    keys = keys_of_rows(rows, 1, 2 * BLOCK)
    (arrival,) = arrivals_of(rows, keys, qps=None, ttft_slo_s=5.0, max_input=2 * BLOCK)
    assert (arrival.request.prompt_tokens, len(arrival.request.keys)) == (1024, 2)


def test_a_partial_last_block_has_a_key_and_surplus_ids_have_none() -> None:
    assert [len(keys) for keys in keys_of_rows([row(0, (1, 2), tokens=600), row(0, (1, 2, 3), tokens=600)], 1)] == [
        2,
        2,
    ]


def test_keys_differ_between_seeds_and_are_shared_within_one() -> None:
    rows = [row(0, (1, 2)), row(1, (1, 3))]
    first, second = keys_of_rows(rows, 1), keys_of_rows(rows, 2)
    assert first[0][0] == first[1][0]
    assert first[0][1] != first[1][1]
    assert not set(first[0]) & set(second[0])


def test_an_open_loop_yields_every_request_once() -> None:
    rows = [row(0, (1,)), row(4, (2,))]
    source = FixedArrivals(arrivals_of(rows, keys_of_rows(rows, 0), qps=None, ttft_slo_s=5.0))
    seen = []
    while (at_s := source.next_time()) is not None:
        taken = source.take()
        seen.append((at_s, taken.request.request_id))
        source.ended(taken.request.request_id, at_s)
    assert seen == [(0.0, "request-00000000"), (4.0, "request-00000001")]


def test_the_first_small_blocks_are_followed_by_the_larger_ones() -> None:
    plain = row(0, (1, 2, 3), tokens=1536)
    within = msgspec.structs.replace(plain, head_ids=(7, 8, 1, 9))
    before = msgspec.structs.replace(plain, head_ids=(7, 8))
    (keys,) = keys_of_rows([plain], 1)
    heads = heads_of_rows([plain, within, before], 1)
    assert [len(head) for head in heads] == [0, 6, 5]
    assert heads[1][2:3] + heads[1][4:] == keys
    assert heads[2][2:] == keys


ARRIVALS = Workload(generate(200, 3)).arrivals(5.0, 2.0)


@pytest.mark.parametrize("jitter_s", [0.01, 0.5, 60.0])
def test_requests_keep_their_order_and_move_no_further(jitter_s: float) -> None:
    moved = jittered_arrivals(ARRIVALS, jitter_s, 1)
    times = [item.request.arrived_s for item in moved]
    assert times == sorted(times)
    assert times[0] >= 0
    for before, after in zip(ARRIVALS, moved, strict=True):
        assert after.request.request_id == before.request.request_id
        assert after.request.keys == before.request.keys
        assert after.request.arrived_s - before.request.arrived_s <= jitter_s


def test_the_seed_determines_the_jitter() -> None:
    one, again, other = (jittered_arrivals(ARRIVALS, 0.5, seed) for seed in (1, 1, 2))
    assert one == again != other


def test_a_pattern_without_jitter_moves_no_request() -> None:
    still, moved = (ArrivalPattern(jitter_s=number).source(ARRIVALS, 5.0, 1) for number in (0.0, 0.5))
    assert [still.take() for _ in ARRIVALS] == ARRIVALS
    assert [moved.take() for _ in ARRIVALS] != ARRIVALS


def test_gaps_have_the_mean_and_spread_of_a_poisson_process() -> None:
    gaps = [later - sooner for sooner, later in pairwise(islice(poisson_times(Random(1), 4.0), 20_000))]
    assert mean(gaps) == pytest.approx(0.25, rel=0.03)
    assert pstdev(gaps) == pytest.approx(0.25, rel=0.03)


def test_requests_keep_their_order_and_all_fields_except_their_times() -> None:
    arrivals = chat(50).arrivals(None, 5.0)
    timed = poisson_arrivals(arrivals, 10.0, 3)
    assert [item.request.request_id for item in timed] == [arrival.request.request_id for arrival in arrivals]
    times = [item.request.arrived_s for item in timed]
    assert times == sorted(times)
    assert poisson_arrivals(arrivals, 10.0, 3) == timed != poisson_arrivals(arrivals, 10.0, 4)


def test_a_rate_of_zero_is_rejected() -> None:
    with pytest.raises(ValueError, match="above 0"):
        next(poisson_times(Random(1), 0.0))


def test_a_closed_loop_has_at_most_one_request_per_client_and_samples_idle_times() -> None:
    workload = chat(60)
    asked = spec(arrivals=ArrivalPattern(kind="closed", clients=3), warmup=10)
    simulation = simulation_of(asked, workload)
    waiting: list[int] = []
    simulation.run(lambda running: waiting.append(running.unfinished) or False)
    assert max(waiting) == 3
    assert {record.status for record in simulation.history} == {"finished"}
    assert simulation.samples.mean_cv > 0


@pytest.mark.parametrize("pattern", [ArrivalPattern(kind="poisson"), ArrivalPattern(kind="closed", think_s=0.5)])
def test_the_same_seed_repeats_the_events_and_another_seed_changes_them(pattern: ArrivalPattern) -> None:
    def events(seed: int) -> str:
        log = KeptEventLog()
        qps = 4.0 if pattern.kind == "poisson" else None
        simulation_of(spec(arrivals=pattern, qps=qps, seed=seed), chat(40), log=log).run()
        return log.digest()

    assert events(1) == events(1) != events(2)


def test_poisson_arrivals_have_the_requested_rate() -> None:
    workload = chat(400)
    simulation = simulation_of(spec("round_robin", arrivals=ArrivalPattern(kind="poisson"), qps=5.0), workload)
    simulation.run()
    assert simulation.history[-1].request.arrived_s == pytest.approx(400 / 5.0, rel=0.15)


def test_poisson_arrivals_without_a_rate_are_rejected() -> None:
    with pytest.raises(ValueError, match="need a rate"):
        simulation_of(spec(arrivals=ArrivalPattern(kind="poisson")), chat(10))
