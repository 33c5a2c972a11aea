"""Admission under virtual time: parameters by name, deferred requests are woken, and rejection after prefill.

Three times the load that a fleet can serve: throughput in time stays, and the queue is bounded.
"""

import msgspec
import pytest

from routing.policy.policy_document import RoutingPolicy, Stage
from simulator.fleet.request_record import FINISHED, REJECTED
from simulator.runs.run_report import RunReport, report_of
from simulator.runs.simulation_run import RunSpec, evaluation_policy, run, simulation_of
from simulator.runs.stage_parameters import set_parameters
from simulator.workloads.prepared_workload import Workload
from tests.simulator.fleets import chat, row, spec


def burst(count: int, output_tokens: int = 40) -> Workload:
    """Return this many requests with unique prompts of 8,192 tokens, one every 100 ms."""
    return Workload([row(0.1 * n, range(1000 * n, 1000 * n + 16), output_tokens) for n in range(count)])


def policy(**parameters: bool | float | str) -> RoutingPolicy:
    made, problems = set_parameters(
        evaluation_policy(Stage(name="least_cost"), Stage(name="fifo")),
        {k.replace("__", "."): v for k, v in parameters.items()},
    )
    assert not problems
    return made


def test_admission_parameters_are_set_by_name() -> None:
    made = policy(admission__mode="early", admission__defer_s=0.5, tpot_slo_s=0.05, decode_cost__base_s=0.02)
    assert (made.admission.mode, made.admission.defer_s) == ("early", 0.5)
    assert (made.tpot_slo_s, made.decode_cost.base_s) == (0.05, 0.02)


def test_invalid_parameters_are_reported_with_their_path() -> None:
    base = evaluation_policy(Stage(name="least_cost"), Stage(name="fifo"))
    _, problems = set_parameters(base, {"admission.mode": "sometimes", "admission.nothing": 1})
    assert len(problems) == 2
    assert "$.admission.mode" in problems[0]
    assert "admission.nothing" in problems[1]


def test_infeasible_requests_are_rejected_and_all_others_are_on_time() -> None:
    rows = burst(60)
    served = run(RunSpec(policy=policy(), engines=2), rows)
    rejected = run(RunSpec(policy=policy(admission__reject_infeasible=True), engines=2), rows)
    assert max(item.ttft_s or 0.0 for item in served.history) > 10.0
    statuses = [item.status for item in rejected.history]
    assert statuses.count(REJECTED) > 10
    assert all((item.ttft_s or 0.0) <= 5.001 for item in rejected.history if item.status == FINISHED)
    rejected.check()


def test_deferred_requests_are_retried() -> None:
    rows = burst(40)
    at_once = run(RunSpec(policy=policy(admission__mode="early"), engines=2), rows)
    deferred = run(RunSpec(policy=policy(admission__mode="early", admission__defer_s=0.3), engines=2), rows)
    count = [sum(item.status == REJECTED for item in run_.history) for run_ in (at_once, deferred)]
    assert 0 < count[1] <= count[0]
    deferred.check()


def test_an_admission_check_after_prefill_wastes_the_prefill() -> None:
    simulation = simulation_of(RunSpec(policy=policy(), engines=2, engine_model="pd"), burst(10))
    simulation.decode_gate = lambda router, engine_id: False
    simulation.run()
    assert {item.status for item in simulation.history} == {REJECTED}
    assert all(item.first_token_s is not None for item in simulation.history)
    assert len(simulation.router.reservations) == 0
    simulation.check()


def test_the_same_seed_produces_the_same_run() -> None:
    spec = RunSpec(policy=policy(admission__mode="predictive_instance"), engines=2, engine_model="pd")
    runs = [run(spec, burst(30)) for _ in range(2)]
    assert [(item.status, item.first_token_s) for item in runs[0].history] == [
        (item.status, item.first_token_s) for item in runs[1].history
    ]


WAITING = 100
BEARABLE_QPS = 4.0


def loaded(qps: float) -> RunReport:
    chosen = spec("least_cost", "late_last", qps=qps, warmup=50)
    bounded: RunSpec = msgspec.structs.replace(
        chosen, policy=msgspec.structs.replace(chosen.policy, queue_limit=WAITING)
    )
    workload = chat(600)
    simulation = run(bounded, workload)
    simulation.check()
    return report_of(bounded, workload, simulation, 0.0)


@pytest.fixture(scope="module")
def peak_per_s() -> float:
    """Return the requests served in time per second at the better of two loads around the fleet's capacity."""
    return max(qps * loaded(qps).slo_share for qps in (BEARABLE_QPS, 1.5 * BEARABLE_QPS))


@pytest.mark.parametrize("times", [3, 6])
def test_throughput_in_time_stays_constant_under_overload(peak_per_s: float, times: int) -> None:
    qps = times * BEARABLE_QPS
    report = loaded(qps)
    assert qps * report.slo_share >= 0.9 * peak_per_s
    assert report.rejected > WAITING
