import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.runs.goodput import SHARE, LateWatch, find_goodput, largest
from simulator.runs.run_report import mean_of, report_of
from simulator.runs.simulation_run import RunSpec, run
from simulator.workloads.prepared_workload import Workload
from tests.simulator.fleets import chat, row, spec

CONTRACT = [
    "placement", "order", "engines", "qps", "requests", "slo_share", "slo_token_share", "ttft_p50_s", "ttft_p90_s",
    "ttft_p99_s", "ttft_mean_s", "itl_p90_s", "e2e_p50_s", "e2e_p90_s", "token_hit_rate", "hit_rate_infinite",
    "mean_cv", "rejected", "migrations", "transferred_tokens", "wall_s",
]  # fmt: skip


def reported(run_spec: RunSpec, workload: Workload) -> dict:
    report = report_of(run_spec, workload, run(run_spec, workload), 0.25)
    return msgspec.to_builtins(report)


def test_the_report_has_the_documented_keys_in_order() -> None:
    report = reported(spec(qps=4.0), chat(60))
    assert list(report)[: len(CONTRACT)] == CONTRACT
    assert list(report)[len(CONTRACT) :] == ["detail"]
    assert (report["placement"], report["order"], report["engines"], report["requests"]) == (
        "least_cost",
        "fifo",
        2,
        60,
    )


def test_shares_count_requests_and_tokens_on_time() -> None:
    rows = [row(0, range(20)), *(row(0, (100 + number,)) for number in range(3))]
    policy = msgspec.structs.replace(spec().policy, ttft_slo_s=0.3)
    report = reported(RunSpec(policy=policy, engines=2), Workload(rows))
    assert report["slo_share"] == 0.75
    assert report["slo_token_share"] == pytest.approx(3 / 23)


def test_the_warm_up_is_not_counted_but_warms_the_caches() -> None:
    rows = [row(0, range(20)), row(10, range(20))]
    report = reported(spec(warmup=1), Workload(rows))
    assert report["token_hit_rate"] == report["hit_rate_infinite"] == 1.0
    assert report["detail"]["counted"] == 1
    assert report["ttft_p99_s"] == pytest.approx(report["ttft_mean_s"])


def test_rejected_requests_are_late() -> None:
    policy = msgspec.structs.replace(spec().policy, queue_limit=1)
    report = reported(RunSpec(policy=policy, engines=1), Workload([row(0, (number,)) for number in range(4)]))
    assert (report["rejected"], report["slo_share"]) == (2, 0.5)


def test_a_slow_response_is_late_if_tpot_has_an_objective() -> None:
    rows = [row(0, (1,), output=20), row(5, (2,), output=1)]
    free = reported(spec(engine_model="colocated"), Workload(rows))
    bound = reported(spec(engine_model="colocated", slo_tpot_s=0.010), Workload(rows))
    assert (free["slo_share"], bound["slo_share"]) == (1.0, 0.5)
    assert 0.015 < free["itl_p90_s"] < 0.016
    assert free["e2e_p90_s"] == pytest.approx(free["ttft_p50_s"] + 19 * free["itl_p90_s"], rel=0.1)


def test_bands_split_requests_by_prompt_length() -> None:
    rows = [row(0, range(number * 40, number * 40 + number + 1)) for number in range(20)]
    bands = reported(spec(engines=1), Workload(rows))["detail"]["bands"]
    assert [band["requests"] for band in bands] == [5, 5, 5, 5, 2]
    assert (bands[0]["from_tokens"], bands[-1]["to_tokens"]) == (512, 20 * 512)


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


def test_one_report_equals_its_mean() -> None:
    report = {"slo_share": 0.5}
    assert mean_of([report]) is report


def test_numeric_fields_are_averaged_and_other_differences_omitted() -> None:
    one = {"placement": "a", "slo_share": 0.5, "rejected": 1, "ttft_p50_s": None, "detail": {"seed": 0}}
    other = {"placement": "a", "slo_share": 1.0, "rejected": 2, "ttft_p50_s": 1.0, "detail": {"seed": 1}}
    mean = mean_of([one, other])
    assert mean == {"placement": "a", "slo_share": 0.75, "rejected": 1.5, "ttft_p50_s": None, "seeds": [one, other]}


def test_equal_integers_stay_integers() -> None:
    assert isinstance(mean_of([{"engines": 8}, {"engines": 8}])["engines"], int)
