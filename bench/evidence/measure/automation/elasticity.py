"""Scaling under load (DualMap A.3.3, Fig. 12): four engines are too few, then eight are too many."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from bench.evidence import modulo_map
from bench.evidence.cells import run_all
from bench.evidence.store import Result, Row, measured
from bench.evidence.traces import MAX_INPUT, whole_trace
from planning.documents.automation_document import AutomationPolicy
from planning.documents.health_document import HealthDocument
from planning.documents.rebalance_document import RebalanceDocument
from planning.documents.scaling_document import ScalingDocument
from routing.policy.policy_document import Parameter, Stage
from simulator.automation.fleet_automation import FleetAutomation, scaling_timeline
from simulator.engine_models.engine_profile import EngineProfile
from simulator.fleet.fleet_simulation import FleetSimulation
from simulator.fleet.request_record import RequestRecord
from simulator.runs.simulation_run import RunSpec, evaluation_policy, simulation_of
from simulator.workloads.prepared_workload import Workload
from simulator.workloads.trace import TraceRow

TRACE = "toolagent_like"
FEW, MANY = 4, 8
PHASES = ((5.0, 300.0), (16.0, 600.0), (5.0, 1800.0))
"""(requests/s, seconds): enough for the few engines, too much for them, then little for many engines.

The paper's engines are slower.
"""
SLO_TTFT_S = 5.0
STEP_S = 10.0
"""Width of the windows in which attainment and hits are shown."""
FIXED_CHANGE_S = 450.0
"""Time of the fleet's change in the runs that compare hash rings with modulo hashing."""
FIXED_QPS = 12.0

AUTOMATION = AutomationPolicy(
    health=HealthDocument(mode="off"),
    rebalance=RebalanceDocument(mode="off"),
    scaling=ScalingDocument(
        mode="act",
        min_engines=FEW,
        max_engines=MANY,
        max_up=4,
        window_s=30.0,
        warm_up_s=20.0,
        up_cool_down_s=30.0,
        down_cool_down_s=120.0,
    ),
)


REACTIVE = replace(AUTOMATION, scaling=replace(AUTOMATION.scaling, forecast=False, utilisation=0.75))
"""Without a forecast, and with a high threshold for a busy engine: acts after an overload begins, as in the paper."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run. `start`: initial engines. `change`: engines after FIXED_CHANGE_S (0: the planner decides)."""

    label: str
    placement: str
    order: str = "fifo"
    params: dict[str, Parameter] = {}
    start: int = FEW
    change: int = 0
    automation: bool = True
    reactive: bool = False


RUNS = (
    Run(label="dual_map", placement="dual_map"),
    Run(label="dual_map, reactive", placement="dual_map", reactive=True),
    Run(label="least_cost + slack", placement="least_cost", order="slack"),
    Run(label="dual_map, no scaling", placement="dual_map", automation=False),
    *(
        Run(label=f"{label} {start}→{change}", placement=placement, start=start, change=change, automation=False)
        for label, placement in (("rings", "dual_map"), ("modulo", modulo_map.NAME))
        for start, change in ((8, 8), (8, 9), (8, 7))
    ),
)


def measure(jobs: int) -> Result:
    """Run the planner's fleets, the fixed one, and hash rings against modulo hashing at one change of the fleet."""
    return measured(
        name="elasticity",
        settings={
            "trace": TRACE,
            "max_input_tokens": MAX_INPUT,
            "phases": [list(item) for item in PHASES],
            "slo_ttft_s": SLO_TTFT_S,
            "fixed_qps": FIXED_QPS,
            "fixed_change_s": FIXED_CHANGE_S,
            "automation": msgspec.to_builtins(AUTOMATION.scaling),
        },
        rows=run_all(run_one, RUNS, jobs=jobs, title="elasticity"),
    )


def phased(rows: Sequence[TraceRow], phases: Sequence[tuple[float, float]]) -> list[TraceRow]:
    """Return the first rows, as many in each phase as its mean rate and duration require.

    The trace's own gaps within a phase are kept, stretched or shrunk.
    """
    made: list[TraceRow] = []
    start_s, first = 0.0, 0
    for qps, seconds in phases:
        part = rows[first : first + round(qps * seconds)]
        first += len(part)
        begin, end = part[0].timestamp, part[-1].timestamp
        scale = seconds / max(end - begin, 1e-9)
        made += [replace(row, timestamp=1000 * (start_s + (row.timestamp - begin) * scale)) for row in part]
        start_s += seconds
    return made


def run_one(asked: Run) -> Row:
    """Run one fleet and return its figures over time."""
    phases = ((FIXED_QPS, 2 * FIXED_CHANGE_S),) if asked.change else PHASES
    work = Workload(phased(whole_trace(TRACE), phases), max_input=MAX_INPUT)
    policy = evaluation_policy(
        Stage(name=asked.placement, params=asked.params), Stage(name=asked.order), ttft_slo_s=SLO_TTFT_S
    )
    profile = EngineProfile()
    simulation = simulation_of(
        RunSpec(policy=policy, engines=asked.start, profile=profile), work, placements=modulo_map.WITH_MODULO
    )
    automation = FleetAutomation(
        REACTIVE if asked.reactive else AUTOMATION, profile, rings=2 if asked.placement == "dual_map" else 0
    )
    if asked.automation:
        automation.attach(simulation)
    if asked.change:
        _change_at(simulation, asked.start, asked.change)
    simulation.run()
    return {
        "label": asked.label,
        "placement": asked.placement,
        "order": asked.order,
        "requests": len(simulation.history),
        "plans": scaling_timeline(automation),
        "sizes": _changes(automation.sizes),
        "course": _course(simulation.history),
    }


def _change_at(simulation: FleetSimulation, start: int, after: int) -> None:
    from simulator.fleet.fleet_changes import EngineDies, EngineJoins

    def happens(running: FleetSimulation) -> None:
        if after > start:
            running.change(EngineJoins(running.now, f"e-{after:03}"))
        elif after < start:
            running.change(EngineDies(running.now, f"e-{start:03}"))

    simulation.call_at(FIXED_CHANGE_S, happens)


def _changes(sizes: Sequence[tuple[float, int]]) -> list[list[float]]:
    """Return (time, number) for each change in the number of engines that accept work."""
    changes: list[list[float]] = []
    for at_s, size in sizes:
        if not changes or changes[-1][1] != size:
            changes.append([at_s, size])
    return changes


def _course(records: Sequence[RequestRecord]) -> list[list[float | None]]:
    """Return per window of arrivals: start, requests, share on time, hit tokens as a share of prompt tokens."""
    windows: dict[int, list[RequestRecord]] = {}
    for record in records:
        windows.setdefault(int(record.request.arrived_s // STEP_S), []).append(record)
    course: list[list[float | None]] = []
    for at, part in sorted(windows.items()):
        on_time = sum(item.first_token_s is not None and item.first_token_s <= item.request.deadline_s for item in part)
        tokens = sum(item.request.prompt_tokens for item in part if item.hit_tokens is not None)
        hits = sum(item.hit_tokens or 0 for item in part)
        course.append([at * STEP_S, len(part), on_time / len(part), hits / tokens if tokens else None])
    return course
