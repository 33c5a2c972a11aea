from __future__ import annotations

from itertools import pairwise

import pytest

from routing.policy.policy_document import Stage
from routing.values.inference_request import InferenceRequest
from simulator.runs.simulation_run import RunSpec, evaluation_policy, simulation_of
from simulator.workloads.arrivals import Arrival
from simulator.workloads.closed_loop import ClosedLoop
from simulator.workloads.prepared_workload import Workload
from simulator.workloads.registry import generate_workload


def _arrivals(*sessions: str) -> list[Arrival]:
    return [
        Arrival(InferenceRequest(f"r{number}", (), 100, 512, 99.0, 5.0, 1, "", session), 1)
        for number, session in enumerate(sessions)
    ]


def test_a_client_sends_nothing_until_its_response_has_arrived() -> None:
    loop = ClosedLoop(_arrivals("a", "a"), clients=1, think_s=0.0, seed=1)
    first = loop.take()
    assert (first.request.request_id, first.request.arrived_s) == ("r0", 0.0)
    assert loop.next_time() is None
    assert not loop.over
    loop.ended("r0", 7.5)
    assert loop.next_time() == 7.5
    assert loop.take().request.arrived_s == 7.5
    assert loop.over


def test_clients_work_concurrently_and_start_the_next_session_after_the_last() -> None:
    loop = ClosedLoop(_arrivals("a", "b", "a", "", ""), clients=2, think_s=0.0, seed=1)
    assert [loop.take().request.request_id for _ in range(2)] == ["r0", "r1"]
    loop.ended("r1", 1.0)
    assert loop.take().request.request_id == "r3"
    loop.ended("r0", 2.0)
    assert loop.take().request.request_id == "r2"
    loop.ended("r2", 3.0)
    assert loop.take().request.request_id == "r4"
    for name in ("r3", "r4", "r4", "unknown"):
        loop.ended(name, 4.0)
    assert loop.next_time() is None


def test_think_times_have_the_requested_mean_and_follow_the_seed() -> None:
    def gaps(seed: int) -> list[float]:
        loop = ClosedLoop(_arrivals(*["a"] * 2000), clients=1, think_s=3.0, seed=seed)
        times = []
        for number in range(2000):
            times.append(loop.take().request.arrived_s)
            loop.ended(f"r{number}", times[-1])
        return times

    assert gaps(5)[-1] / 2000 == pytest.approx(3.0, rel=0.07)
    assert gaps(5) == gaps(5) != gaps(6)


@pytest.mark.parametrize(("clients", "think_s"), [(0, 1.0), (1, -1.0)])
def test_zero_clients_are_rejected(clients: int, think_s: float) -> None:
    with pytest.raises(ValueError, match="make no load"):
        ClosedLoop(_arrivals("a"), clients=clients, think_s=think_s, seed=1)


def test_a_fleet_never_has_more_requests_than_clients_and_serves_them_all() -> None:
    rows = generate_workload("multi_turn_chat", seed=2, rows=120, settings={"sessions": 24})
    workload = Workload(rows)
    policy = evaluation_policy(Stage(name="least_cost"), Stage(name="fifo"))
    loop = ClosedLoop(workload.arrivals(None, 5.0), clients=5, think_s=0.5, seed=3)
    simulation = simulation_of(RunSpec(policy=policy, engines=2, engine_model="chunked"), workload, source=loop)
    in_flight: list[int] = []
    simulation.run(lambda running: in_flight.append(running.unfinished) or False)
    assert 2 <= max(in_flight) <= 5
    assert {record.status for record in simulation.history} == {"finished"}
    assert len(simulation.history) == 120
    turns: dict[str, list[tuple[float, float]]] = {}
    for record in simulation.history:
        assert record.finished_s is not None
        turns.setdefault(record.request.session_id, []).append((record.request.arrived_s, record.finished_s))
    for session in turns.values():
        assert all(answered <= asked for (_, answered), (asked, _) in pairwise(session)), "one turn after the other"
