"""Sick engines (stuck, but answering /health with 200): how soon each kind of fault is detected."""

from __future__ import annotations

import msgspec

from bench.evidence.cells import run_all
from bench.evidence.engine_faults import fault_at, restart_at
from bench.evidence.store import Result, Row, measured
from planning.documents.automation_document import AutomationPolicy
from planning.documents.health_document import HealthDocument
from planning.documents.rebalance_document import RebalanceDocument
from planning.documents.scaling_document import ScalingDocument
from planning.engine_health.health_verdict import QUARANTINED
from routing.policy.policy_document import Stage
from routing.router import Router
from simulator.automation.fleet_automation import FleetAutomation
from simulator.engine_models.engine_profile import EngineProfile
from simulator.engine_models.faulty_engine import FaultKind, FaultyEngine
from simulator.engine_models.fifo_engine import colocated
from simulator.fleet.fleet_simulation import FleetSimulation
from simulator.fleet.request_record import FAILED
from simulator.runs.run_report import on_time
from simulator.runs.simulation_run import engine_names, evaluation_policy
from simulator.workloads.arrivals import FixedArrivals
from simulator.workloads.prepared_workload import Workload
from simulator.workloads.registry import generate_workload
from simulator.workloads.trace import TraceRow

ENGINES = 8
SICK = "e-003"
QPS, BURST_QPS = 4.0, 18.0
"""Requests/s, normally and in bursts, which exceed the fleet's prefill rate."""
PERIOD_S, BURST_S = 120.0, 20.0
FAULT_S, HEALED_S, END_S = 200.0, 380.0, 600.0
HEALTHY_S = 3600.0
FLAP_EVERY_S = 20.0
STOOD_S = 40.0
COMPILE_S = 60.0
SLO_TTFT_S = 5.0

KINDS = ("hang", "compile", "crawl", "lie", "stop", "flap", "pause", "never_starts", "garbage", "frozen", "frozen_hang")
"""Faults; compile: a hang that ends by itself after COMPILE_S; flap: a restart every FLAP_EVERY_S; frozen_hang: its
metrics freeze STOOD_S before it hangs.
"""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run. `none` is an hour of healthy traffic."""

    kind: str
    health: bool = True
    workload: str = "conversation_like"
    seed: int = 1


UNGUARDED = ("hang", "crawl", "stop")
"""Faults that are also run without engine health."""

RUNS = (
    Run(kind="none", seed=1),
    Run(kind="none", seed=2),
    Run(kind="none", workload="toolagent_like", seed=1),
    *(Run(kind=kind) for kind in KINDS),
    *(Run(kind=kind, health=False) for kind in UNGUARDED),
)


def measure(jobs: int) -> Result:
    """Run an hour without faults, and each fault with and without engine health."""
    return measured(
        name="health",
        settings={
            "engines": ENGINES,
            "engine_model": "colocated",
            "qps": QPS,
            "burst_qps": BURST_QPS,
            "period_s": PERIOD_S,
            "burst_s": BURST_S,
            "fault_s": FAULT_S,
            "healed_s": HEALED_S,
            "compile_s": COMPILE_S,
            "slo_ttft_s": SLO_TTFT_S,
            "tick_s": 1.0,
            "health": msgspec.to_builtins(HealthDocument()),
        },
        rows=run_all(run_one, RUNS, jobs=jobs, title="health"),
    )


def bursty(workload: str, seed: int, seconds: float) -> list[TraceRow]:
    """Return generated requests whose rate rises to BURST_QPS for BURST_S in each PERIOD_S."""
    share = BURST_S / PERIOD_S
    mean_qps = QPS * (1 - share) + BURST_QPS * share
    rows = generate_workload(workload, seed=seed, rows=round(mean_qps * seconds), settings={"qps": mean_qps})
    return [msgspec.structs.replace(row, timestamp=1000 * _warped(row.timestamp / 1000, mean_qps)) for row in rows]


def _warped(at_s: float, mean_qps: float) -> float:
    """Return the time at which bursts have produced as many requests as the mean rate has by `at_s`."""
    periods, rest_s = divmod(at_s, PERIOD_S)
    due = rest_s * mean_qps
    calm = QPS * (PERIOD_S - BURST_S)
    return periods * PERIOD_S + (due / QPS if due <= calm else PERIOD_S - BURST_S + (due - calm) / BURST_QPS)


def run_one(asked: Run) -> Row:
    """Run one fleet and return the outcomes for the engine and the requests."""
    seconds = HEALTHY_S if asked.kind == "none" else END_S
    work = Workload(bursty(asked.workload, asked.seed, seconds), max_input=20_480)
    profile = EngineProfile()
    policy = msgspec.structs.replace(
        evaluation_policy(Stage(name="least_cost"), Stage(name="late_last"), ttft_slo_s=SLO_TTFT_S), bottleneck_s=3.0
    )
    simulation = FleetSimulation(
        Router("health", policy, 1),
        FixedArrivals(work.arrivals(None, SLO_TTFT_S)),
        lambda: FaultyEngine(colocated(profile, emit_tokens=True)),
        engine_names(ENGINES),
    )
    automation = FleetAutomation(_automation(asked.health), profile)
    automation.attach(simulation)
    _schedule(simulation, asked.kind)
    simulation.run()
    names: Row = {"kind": asked.kind, "health": asked.health, "workload": asked.workload, "seed": asked.seed}
    return names | _figures(simulation, automation, asked.kind)


def _automation(health: bool) -> AutomationPolicy:
    return AutomationPolicy(
        health=HealthDocument(mode="act" if health else "off"),
        rebalance=RebalanceDocument(mode="off"),
        scaling=ScalingDocument(mode="off"),
    )


def _schedule(simulation: FleetSimulation, kind: str) -> None:
    faults: dict[str, FaultKind] = {item: item for item in KINDS if item not in ("flap", "compile")}  # type: ignore[misc]
    if kind == "flap":
        for at in range(int((HEALED_S - FAULT_S) / FLAP_EVERY_S)):
            restart_at(simulation, FAULT_S + at * FLAP_EVERY_S, SICK)
    elif kind == "compile":
        fault_at(simulation, FAULT_S, SICK, "hang")
        fault_at(simulation, FAULT_S + COMPILE_S, SICK, "none")
    elif kind in faults:
        if kind == "frozen_hang":
            fault_at(simulation, FAULT_S - STOOD_S, SICK, "frozen")
        fault_at(simulation, FAULT_S, SICK, faults[kind])
        if kind in ("hang", "lie", "frozen_hang"):
            restart_at(simulation, HEALED_S, SICK)
        else:
            fault_at(simulation, HEALED_S, SICK, "none")


def _figures(simulation: FleetSimulation, automation: FleetAutomation, kind: str) -> Row:
    fault_s = FAULT_S if kind != "none" else END_S * 1000
    changes = [
        (plan.at_s, verdict)
        for plan in automation.health
        for verdict in plan.verdicts
        if verdict.engine_id in plan.changed
    ]
    out = [(at_s, verdict) for at_s, verdict in changes if verdict.state == QUARANTINED]
    sick = [(at_s, verdict.code) for at_s, verdict in out if verdict.engine_id == SICK and at_s >= fault_s]
    doubts = [(at_s, verdict.code) for at_s, verdict in changes if verdict.engine_id == SICK and at_s >= fault_s]
    wrongly = [
        [at_s, verdict.engine_id, verdict.code, verdict.text]
        for at_s, verdict in out
        if verdict.engine_id != SICK or at_s < fault_s
    ]
    suspects = [verdict for _, verdict in changes if verdict.state == "suspect" and verdict.engine_id != SICK]
    records = simulation.history
    during = [record for record in records if FAULT_S <= record.request.arrived_s < HEALED_S]
    return {
        "requests": len(records),
        "quarantined_after_s": sick[0][0] - fault_s if sick else None,
        "code": sick[0][1] if sick else "",
        "first_sign_after_s": doubts[0][0] - fault_s if doubts else None,
        "first_sign": doubts[0][1] if doubts else "",
        "quarantines": len(sick),
        "wrongly": wrongly,
        "suspects": len(suspects),
        "lost_without_first_token": sum(record.status == FAILED and record.first_token_s is None for record in records),
        "broken_off": sum(record.status == FAILED and record.first_token_s is not None for record in records),
        "on_time_during": sum(on_time(item, None) for item in during) / len(during),
        "on_time": sum(on_time(record, None) for record in records) / len(records),
        "worst_ttft_s": max((record.ttft_s or 0.0) for record in records),
        "well_again_after_s": _well_again(automation, FAULT_S + COMPILE_S if kind == "compile" else HEALED_S),
    }


def _well_again(automation: FleetAutomation, healed_s: float) -> float | None:
    """Return the seconds from the end of the fault until the engine has its full share, None if it never lost it."""
    seen = [
        (plan.at_s, verdict) for plan in automation.health for verdict in plan.verdicts if verdict.engine_id == SICK
    ]
    out = [at_s for at_s, change in seen if change.load_share < 1.0]
    back = [at_s for at_s, change in seen if out and at_s > out[-1] and change.load_share == 1.0]
    return back[0] - healed_s if back else None
