from __future__ import annotations

import pytest

from simulator.runs.simulation_run import simulation_of
from simulator.workloads.arrival_pattern import ArrivalPattern
from tests.simulator.fleets import chat, spec
from tests.simulator.kept_event_log import KeptEventLog


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
