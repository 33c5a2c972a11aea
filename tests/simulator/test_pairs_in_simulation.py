"""In virtual time, the router's own pairs choose the decode engine, as they do live."""

from __future__ import annotations

from collections import Counter

from routing.policy.policy_document import Stage
from routing.router import Router
from routing.values.decision import Decision
from simulator.engine_models.engine_profile import EngineProfile
from simulator.fleet.disaggregated_fleet import DisaggregatedFleet
from simulator.fleet.engine_slots import Station
from simulator.fleet.fleet_changes import EngineDies, EngineJoins
from simulator.fleet.request_record import RequestRecord
from simulator.runs.simulation_run import evaluation_policy
from simulator.workloads.arrivals import FixedArrivals
from simulator.workloads.prepared_workload import Workload
from tests.simulator.fleets import row

ROLES = {"p-1": "prefill", "p-2": "prefill", "d-1": "decode", "d-2": "decode"}


class Watched(DisaggregatedFleet):
    """Record the decode engine of each decision, and the engine that produced its last token."""

    def __init__(self, requests: int = 60) -> None:
        rows = [row(0.15 * number, (number % 7, 100 + number), output=40) for number in range(requests)]
        self.named: dict[str, str] = {}
        self.decoded: dict[str, str] = {}
        policy = evaluation_policy(Stage(name="least_cost"), Stage(name="slack"))
        arrivals = Workload(rows, seed=1).arrivals(None, policy.ttft_slo_s)
        router = Router("simulation", policy, 1)
        super().__init__(router, FixedArrivals(arrivals), EngineProfile(), ROLES)  # type: ignore[arg-type]

    def _dispatch(self, record: RequestRecord, decision: Decision) -> None:
        assert decision.pair is not None
        self.named[decision.decision_id] = decision.pair.engine_id
        super()._dispatch(record, decision)

    def start_decode(self, decoder: Station, handover: object) -> None:
        self.decoded[handover.sequence.request_id] = decoder.engine_id  # type: ignore[attr-defined]
        super().start_decode(decoder, handover)  # type: ignore[arg-type]


def test_each_request_decodes_on_the_engine_of_its_decision() -> None:
    fleet = Watched()
    fleet.run()
    fleet.check()
    assert {record.status for record in fleet.history} == {"finished"}
    assert fleet.decoded == fleet.named
    shares = Counter(fleet.named.values())
    assert set(shares) == {"d-1", "d-2"}
    assert abs(shares["d-1"] - shares["d-2"]) < 20, "least time between tokens keeps them level"
    assert fleet.router.pairs is not None
    assert len(fleet.router.pairs.legs) + len(fleet.router.reservations) == 0
    assert {record.engine_id for record in fleet.history} == {"p-1", "p-2"}


def test_work_moves_when_a_decode_engine_dies_and_another_joins() -> None:
    fleet = Watched()
    fleet.call_at(3.0, lambda running: running.change(EngineDies(3.0, "d-1")))
    fleet.call_at(5.0, lambda running: running.change(EngineJoins(5.0, "d-3", role="decode")))
    fleet.run()
    fleet.check()
    assert set(fleet.named.values()) == {"d-1", "d-2", "d-3"}
    failed = [record for record in fleet.history if record.status == "failed"]
    assert all(record.first_token_s is not None for record in failed), "only half answers are lost"
    assert len(failed) < len(fleet.history) / 4


def test_two_runs_are_equal() -> None:
    first, second = Watched(30), Watched(30)
    first.run()
    second.run()
    assert first.named == second.named
    assert [record.finished_s for record in first.history] == [record.finished_s for record in second.history]
