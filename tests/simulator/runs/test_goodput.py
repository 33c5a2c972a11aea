import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.runs.goodput import SHARE, LateWatch, find_goodput, largest
from simulator.runs.run_report import report_of
from simulator.runs.simulation_run import run
from tests.simulator.fleets import chat, spec


@given(edge=st.integers(0, 3000), guess=st.integers(1, 3000))
def test_the_search_converges_to_the_edge_from_any_guess(edge: int, guess: int) -> None:
    asked: list[int] = []

    def passes(tenths: int) -> bool:
        asked.append(tenths)
        return tenths <= edge

    assert largest(passes, guess) == edge
    assert len(set(asked)) < 60


@given(edge=st.integers(5, 500), guess=st.integers(1, 800), hole=st.integers(0, 1))
def test_a_rate_that_fails_by_chance_near_the_edge_does_not_end_the_search(edge: int, guess: int, hole: int) -> None:
    assert largest(lambda tenths: tenths <= edge and tenths != edge - 1 - hole, guess) == edge


def test_an_infeasible_fleet_passes_no_rate() -> None:
    assert largest(lambda tenths: False, 80) == 0


@pytest.mark.parametrize("qps", [2.0, 4.0, 6.0, 12.0])
@pytest.mark.parametrize("order", ["fifo", "slack"])
def test_a_run_is_cut_short_only_if_it_must_fail(qps: float, order: str) -> None:
    workload, run_spec = chat(250), spec("least_cost", order, qps=qps, warmup=20)
    whole = report_of(run_spec, workload, run(run_spec, workload), 0.0)
    cut = run(run_spec, workload, LateWatch(len(workload), run_spec.warmup))
    if whole.slo_share >= SHARE:
        assert not cut.unfinished
    else:
        assert cut.now <= run(run_spec, workload).now


def test_goodput_is_the_highest_rate_that_holds() -> None:
    workload, run_spec = chat(250), spec("least_cost", "fifo", warmup=20)
    tried: dict[float, bool] = {}
    goodput = find_goodput(run_spec, workload, tried.__setitem__)
    assert goodput.by_both <= goodput.by_requests
    assert tried[goodput.by_requests]
    assert not any(tried.get(round(goodput.by_requests + beyond / 10, 1), True) for beyond in (1, 2, 3))
    assert goodput.runs == len(tried)
