"""The second simulator implements the model of the study; its readings differ where the paper is ambiguous."""

from __future__ import annotations

from functools import cache

import pytest

from bench.evidence.second_simulator.orders import take
from bench.evidence.second_simulator.placements import Reading
from bench.evidence.second_simulator.run import Asked, run
from bench.evidence.second_simulator.station import CACHE_BLOCKS, Job, Station, prefill_s
from simulator.runs.run_report import report_of
from simulator.runs.simulation_run import run as run_ours
from simulator.workloads.prepared_workload import Workload
from simulator.workloads.registry import generate_workload
from simulator.workloads.trace import TraceRow
from tests.simulator.fleets import spec


@cache
def rows() -> list[TraceRow]:
    return generate_workload("toolagent_like", seed=7, rows=900)


def job(number: int, *blocks: int, arrived_s: float = 0.0) -> Job:
    return Job(number, arrived_s, 512 * len(blocks), blocks)


def test_hits_count_when_a_request_starts_and_blocks_are_stored_when_it_ends() -> None:
    station = Station()
    first, second = job(1, 1, 2), job(2, 1, 2)
    station.bind(first)
    station.bind(second)
    assert second.estimate_s == pytest.approx(prefill_s(1024, 1024)), "the first one's blocks are on their way"
    station.waiting.clear()
    station.start(second, 0.0)
    assert station.free_s == pytest.approx(prefill_s(1024, 0)), "but not there yet"
    station.finish()
    assert (station.resident((1, 2)), second.ttft_s) == (2, pytest.approx(prefill_s(1024, 0)))


def test_cache_evicts_the_least_recently_used_leaf() -> None:
    station = Station()
    for number in range(CACHE_BLOCKS + 1):
        station.bind(job(number, number))
        station.start(station.waiting.pop(), 0.0)
        station.finish()
    assert len(station.cache) == CACHE_BLOCKS
    assert station.resident((0,)) == 0
    assert station.resident((1,)) == 1


@pytest.mark.parametrize("order", ["late_last", "slack"])
def test_infeasible_requests_go_last(order: str) -> None:
    station, reading = Station(), Reading(infeasible_coming=False)
    late, good = job(1, 1, 2), job(2, 3, arrived_s=6.0)
    station.bind(late)
    station.bind(good)
    assert take(order, station, 6.0, reading) is good
    assert station.match((1, 2)) == 0, "a request that was given up brings no blocks"
    assert take(order, station, 6.0, reading) is late
    assert station.match((1, 2)) == 2
    assert take(order, station, 6.0, reading) is None


@pytest.mark.parametrize(("placement", "order"), [("least_cost", "slack"), ("dual_map", "fifo")])
def test_second_simulator_agrees_with_the_product_simulator(placement: str, order: str) -> None:
    ours = Workload(rows(), max_input=20_480)
    asked = spec(placement, order, engines=4, qps=12.0, warmup=200)
    by_us = report_of(asked, ours, run_ours(asked, ours), 0.0)
    reading = Reading(infeasible_wait=False)
    by_second = run(Asked(placement=placement, order=order, engines=4, warmup=200, reading=reading), rows(), 12.0)
    assert by_second.requests == pytest.approx(by_us.slo_share, abs=0.03)


def test_tie_breaking_changes_the_result_of_the_sglang_rule() -> None:
    shares = {
        ties: run(Asked(placement="sglang_cache_aware", engines=4, reading=Reading(ties=ties)), rows(), 14.0).requests  # type: ignore[arg-type]
        for ties in ("request", "first")
    }
    assert shares["request"] != shares["first"]
