"""Small simulated fleets for the simulator's tests."""

from collections.abc import Iterable, Sequence

from routing.policy.policy_document import Stage
from simulator.fleet.fleet_changes import FleetChange
from simulator.fleet.fleet_simulation import FleetSimulation
from simulator.runs.simulation_run import RunSpec, evaluation_policy, simulation_of
from simulator.workloads.conversation_like import generate
from simulator.workloads.prepared_workload import Workload
from simulator.workloads.trace import TraceRow
from tests.simulator.kept_event_log import KeptEventLog

BLOCK = 512


def row(at_s: float, blocks: Iterable[int], output: int = 1, tokens: int | None = None) -> TraceRow:
    ids = tuple(blocks)
    return TraceRow(at_s * 1000, len(ids) * BLOCK if tokens is None else tokens, output, ids)


def spec(placement: str = "least_cost", order: str = "fifo", **fields: object) -> RunSpec:
    policy = evaluation_policy(Stage(name=placement), Stage(name=order))
    return RunSpec(policy=policy, **{"engines": 2, **fields})  # type: ignore[arg-type]


def simulated(
    rows: Sequence[TraceRow], run_spec: RunSpec | None = None, *, changes: Sequence[FleetChange] = ()
) -> tuple[FleetSimulation, KeptEventLog]:
    """Run the rows to their end and return the simulation with its log."""
    log = KeptEventLog()
    chosen = run_spec if run_spec is not None else spec()
    if changes:
        chosen = RunSpec(**{**{f: getattr(chosen, f) for f in chosen.__struct_fields__}, "changes": tuple(changes)})
    simulation = simulation_of(chosen, Workload(rows, seed=chosen.seed), log=log)
    simulation.run()
    simulation.check()
    return simulation, log


def chat(rows: int = 300, seed: int = 5) -> Workload:
    """A generated conversation whose prompts are cut to 20,480 tokens."""
    return Workload(generate(rows, seed), max_input=20_480)
