"""Planners control small simulated fleets: their actions take effect and lose no request."""

from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from bench.evidence.engine_faults import fault_at, restart_at
from planning.documents.automation_document import AutomationPolicy
from planning.documents.health_document import HealthDocument
from planning.documents.ratio_document import RatioDocument
from planning.documents.rebalance_document import RebalanceDocument
from planning.documents.scaling_document import ScalingDocument
from routing.policy.policy_document import Stage
from routing.router import Router
from simulator.automation.fleet_automation import HANG_LIMIT_S, FleetAutomation, scaling_timeline
from simulator.engine_models.engine_profile import EngineProfile
from simulator.engine_models.faulty_engine import FaultKind, FaultyEngine
from simulator.engine_models.fifo_engine import colocated
from simulator.fleet.disaggregated_fleet import DisaggregatedFleet
from simulator.fleet.fleet_simulation import FleetSimulation
from simulator.runs.simulation_run import engine_names, evaluation_policy
from simulator.workloads.arrivals import FixedArrivals
from simulator.workloads.prepared_workload import Workload
from simulator.workloads.trace import TraceRow

PROFILE = EngineProfile()
OFF = AutomationPolicy(
    health=HealthDocument(mode="off"),
    rebalance=RebalanceDocument(mode="off"),
    scaling=ScalingDocument(mode="off"),
    ratio=RatioDocument(mode="off"),
)
SCALING = ScalingDocument(
    mode="act", min_engines=2, max_engines=6, window_s=20.0, warm_up_s=10.0, up_cool_down_s=10.0, down_cool_down_s=40.0
)


def rows(phases: Iterable[tuple[float, float]], *, tokens: int = 4096, answer: int = 20) -> list[TraceRow]:
    """Requests with unique prompts, at this rate per second for this many seconds."""
    made: list[TraceRow] = []
    start_s = 0.0
    for qps, seconds in phases:
        count = round(qps * seconds)
        for at in range(count):
            ids = tuple(range(1000 * len(made), 1000 * len(made) + tokens // 512))
            made.append(TraceRow(1000 * (start_s + at * seconds / count), tokens, answer, ids))
        start_s += seconds
    return made


def policy(placement: str = "least_cost"):
    return evaluation_policy(Stage(name=placement), Stage(name="fifo"))


def fleet(work: list[TraceRow], size: int, *, faulty: bool = False) -> FleetSimulation:
    def build() -> object:
        return FaultyEngine(colocated(PROFILE, emit_tokens=True)) if faulty else colocated(PROFILE)

    source = FixedArrivals(Workload(work).arrivals(None, 5.0))
    return FleetSimulation(Router("p", policy(), 1), source, build, engine_names(size))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def scaled() -> tuple[FleetSimulation, FleetAutomation]:
    simulation = fleet(rows([(2.0, 60.0), (10.0, 120.0), (1.0, 400.0)]), 2)
    automation = FleetAutomation(replace(OFF, scaling=SCALING), PROFILE)
    automation.attach(simulation)
    simulation.run()
    return simulation, automation


def test_overload_adds_several_engines_and_calm_drains_them_one_by_one(scaled) -> None:
    _, automation = scaled
    plans = scaling_timeline(automation)
    added = [plan for plan in plans if plan["action"] == "add"]
    assert max(item["target"] - item["engines"] for item in added) >= 2
    assert all(plan["engines"] - plan["target"] == 1 for plan in plans if plan["action"] == "drain")
    sizes = [size for _, size in automation.sizes]
    assert max(sizes) == 6
    assert sizes[-1] == 2


def test_scaling_loses_no_request(scaled) -> None:
    simulation, _ = scaled
    assert {item.status for item in simulation.history} == {"finished"}
    simulation.check()


def test_requests_are_on_time_again_after_new_engines_have_joined(scaled) -> None:
    simulation, _ = scaled
    late = [item for item in simulation.history if (item.ttft_s or 9.0) > 5.0]
    assert all(60.0 <= item.request.arrived_s < 140.0 for item in late)


def test_advise_mode_changes_nothing() -> None:
    simulation = fleet(rows([(6.0, 90.0)]), 2)
    automation = FleetAutomation(replace(OFF, scaling=replace(SCALING, mode="advise")), PROFILE)
    automation.attach(simulation)
    simulation.run()
    assert automation.scaling
    assert {size for _, size in automation.sizes} == {2}


FAULTS: list[tuple[FaultKind, float]] = [("hang", 14.0), ("lie", 14.0), ("stop", 3.0), ("pause", 2.0)]


@pytest.mark.parametrize(("fault", "within_s"), FAULTS)
def test_a_sick_engine_is_quarantined_and_no_request_without_a_token_is_lost(fault: FaultKind, within_s: float) -> None:
    simulation = fleet(rows([(4.0, 80.0)]), 4, faulty=True)
    automation = FleetAutomation(replace(OFF, health=HealthDocument(mode="act", slow_start_s=5.0)), PROFILE)
    automation.attach(simulation)
    fault_at(simulation, 20.0, "e-002", fault)
    restart_at(simulation, 60.0, "e-002")
    simulation.run()
    out = [
        (plan.at_s, verdict.engine_id)
        for plan in automation.health
        for verdict in plan.verdicts
        if verdict.load_share == 0
    ]
    assert {name for _, name in out} == {"e-002"}
    assert out[0][0] - 20.0 <= within_s
    assert not [item for item in simulation.history if item.status == "failed" and item.first_token_s is None]
    simulation.check()


def slow_for(seconds: float, fault: FaultKind = "hang") -> FleetSimulation:
    """Return a finished run of four engines, one of which makes no progress for this many seconds."""
    simulation = fleet(rows([(4.0, 40.0)]), 4, faulty=True)
    FleetAutomation(replace(OFF, health=HealthDocument(mode="act")), PROFILE).attach(simulation)
    fault_at(simulation, 20.0, "e-002", fault)
    fault_at(simulation, 20.0 + seconds, "e-002", "none")
    simulation.run()
    assert {item.status for item in simulation.history} == {"finished"}
    return simulation


def test_a_paused_engine_keeps_its_requests_until_it_resumes() -> None:
    simulation = slow_for(100.0)
    waited = [item for item in simulation.history if (item.ttft_s or 0.0) > 90.0]
    assert waited
    assert {item.engine_id for item in waited} == {"e-002"}


def test_requests_leave_an_engine_stalled_for_the_hang_limit() -> None:
    simulation = slow_for(HANG_LIMIT_S + 100.0)
    moved = [item for item in simulation.history if (item.ttft_s or 0.0) > 90.0]
    assert moved
    assert "e-002" not in {item.engine_id for item in moved}
    assert max(item.ttft_s or 0.0 for item in moved) < HANG_LIMIT_S + 30.0


def test_a_fault_requires_an_engine_that_supports_faults() -> None:
    simulation = fleet(rows([(1.0, 10.0)]), 1)
    fault_at(simulation, 1.0, "e-001", "hang")
    with pytest.raises(TypeError, match="cannot have faults"):
        simulation.run()


def disaggregated(work: list[TraceRow], prefill: int, decode: int) -> DisaggregatedFleet:
    roles = {f"p-{at}": "prefill" for at in range(prefill)} | {f"d-{at}": "decode" for at in range(decode)}
    source = FixedArrivals(Workload(work).arrivals(None, 5.0))
    return DisaggregatedFleet(Router("p", policy(), 1), source, PROFILE, roles)  # type: ignore[arg-type]


def test_requests_prefill_on_one_engine_and_decode_on_its_partner() -> None:
    simulation = disaggregated(rows([(3.0, 30.0)]), 2, 2)
    simulation.run()
    assert {item.status for item in simulation.history} == {"finished"}
    assert {item.engine_id[0] for item in simulation.history} == {"p"}
    assert all((item.tpot_s or 0.0) > 0 for item in simulation.history)
    simulation.check()


def test_an_engine_changes_its_role_with_the_load_and_loses_no_request() -> None:
    simulation = disaggregated(rows([(12.0, 150.0)], tokens=512, answer=600), 3, 1)
    settings = RatioDocument(mode="act", window_s=20.0, hold_s=10.0, cool_down_s=30.0)
    automation = FleetAutomation(replace(OFF, ratio=settings), PROFILE, restart_s=5.0)
    automation.attach(simulation)
    simulation.run()
    role_changes = [change.after for plan in automation.ratio for change in plan.role_changes]
    assert role_changes
    assert set(role_changes) == {"decode"}
    assert (automation.ratio[-1].prefill, automation.ratio[-1].decode) in {(2, 2), (1, 3)}
    assert {item.status for item in simulation.history} == {"finished"}
    simulation.check()


def test_healthy_engines_are_not_ejected_in_bursts_beyond_their_capacity() -> None:
    phases = [(2.0, 20.0), (14.0, 8.0)] * 5
    simulation = fleet(rows(phases, tokens=6144, answer=60), 4, faulty=True)
    automation = FleetAutomation(replace(OFF, health=HealthDocument(mode="act")), PROFILE)
    automation.attach(simulation)
    simulation.run()
    assert max(item.ttft_s or 0.0 for item in simulation.history) > 5.0
    assert {verdict.load_share for plan in automation.health for verdict in plan.verdicts} <= {1.0}


def test_a_hot_prefix_gets_more_engines_and_later_releases_them() -> None:
    hot = [
        replace(row, hash_ids=(*range(8), *row.hash_ids[:6])) if at % 2 and row.timestamp < 60_000 else row
        for at, row in enumerate(rows([(16.0, 60.0), (4.0, 150.0)], tokens=7168, answer=5))
    ]
    source = FixedArrivals(Workload(hot).arrivals(None, 5.0))
    steered = evaluation_policy(Stage(name="dual_map", params={"adaptive_key": False}), Stage(name="fifo"))
    simulation = FleetSimulation(Router("p", steered, 1), source, lambda: colocated(PROFILE), engine_names(8))
    settings = RebalanceDocument(mode="act", cv_high=0.3)
    automation = FleetAutomation(replace(OFF, rebalance=settings), PROFILE, rings=2)
    automation.attach(simulation)
    simulation.run()
    plans = automation.rebalance.plans
    assert any(plan.wider for plan in plans)
    assert plans[-1].widened == {}
    assert simulation.router.view.roster.widened == {}
    simulation.check()


@pytest.mark.parametrize("minimum", [0, 1])
def test_an_idle_pool_scales_to_zero_and_its_next_request_waits_for_a_start(minimum: int) -> None:
    simulation = fleet(rows([(1.0, 20.0), (0.01, 300.0), (1.0, 20.0)]), 1)
    automation = FleetAutomation(replace(OFF, scaling=replace(SCALING, min_engines=minimum)), PROFILE)
    automation.attach(simulation)
    simulation.run()
    simulation.check()
    records = simulation.history
    assert {record.status for record in records} == {"finished"}
    sizes = {size for at_s, size in automation.sizes if at_s > 15.0}
    waits = [record.first_token_s - record.request.arrived_s for record in records]
    assert min(sizes) == minimum
    # One start: the warm-up of 10 s, and at most a tick until it is ordered.
    assert max(waits) > 10.0 if minimum == 0 else max(waits) < 5.0
    assert max(waits) < 13.0
    codes = [code for plan in scaling_timeline(automation) for code in plan["reasons"]]
    assert ("unserved" in codes) == (minimum == 0)
