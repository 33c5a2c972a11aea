"""One run with automations: a policy over a workload, and the resulting plans."""

from __future__ import annotations

from collections.abc import Iterable

from planning.documents.automation_document import AutomationPolicy
from planning.facts.reason import Reason
from simulator.automation.fleet_automation import FleetAutomation
from simulator.automation.plan_row import PlanRow
from simulator.fleet.fleet_simulation import FleetSimulation, Watch
from simulator.runs.simulation_run import RunSpec, simulation_of
from simulator.workloads.prepared_workload import Workload


def run_automated(
    spec: RunSpec, workload: Workload, policy: AutomationPolicy, watch: Watch | None = None
) -> tuple[FleetSimulation, FleetAutomation]:
    """Run to the end with these automations; return the simulation and its automation."""
    simulation = simulation_of(spec, workload)
    placement = spec.policy.placement
    rings = int(placement.params.get("d", 2)) if placement.name == "dual_map" else 0
    automation = FleetAutomation(policy, spec.profile, rings=rings)
    automation.attach(simulation)
    simulation.run(watch)
    return simulation, automation


def plan_rows(automation: FleetAutomation) -> list[PlanRow]:
    """Return the plans in chronological order."""
    rows = [
        PlanRow(plan.at_s, "scaling", f"{plan.engines} to {plan.target} engines", _why(plan.reasons))
        for plan in automation.scaling
    ]
    rows += [PlanRow(plan.at_s, "health", ", ".join(plan.changed), _why(plan.reasons)) for plan in automation.health]
    for moved in automation.rebalance.plans:
        queued_requests = sum(move.at_most for move in moved.moves)
        what = f"{len(moved.wider)} prefixes wider, {len(moved.narrower)} narrower, {queued_requests} requests may move"
        rows.append(PlanRow(moved.at_s, "rebalance", what, _why(moved.reasons)))
    for ratio in automation.ratio:
        if ratio.role_changes:
            what = ", ".join(f"{change.engine_id} to {change.after}" for change in ratio.role_changes)
            rows.append(PlanRow(ratio.at_s, "ratio", what, _why(ratio.reasons)))
    return sorted(rows, key=lambda row: (row.at_s, row.automation))


def _why(reasons: Iterable[Reason]) -> str:
    return "; ".join(reason.text for reason in reasons)
