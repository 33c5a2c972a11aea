"""Three times the load that a fleet can serve: throughput in time stays, and the queue is bounded."""

from __future__ import annotations

import msgspec
import pytest

from simulator.runs.run_report import RunReport, report_of
from simulator.runs.simulation_run import RunSpec, run
from tests.simulator.fleets import chat, spec

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
