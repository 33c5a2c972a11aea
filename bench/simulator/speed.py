"""Speed of the simulator on one core: `python -m bench.simulator.speed [--trace PATH] --json OUT`.

Requests per second of wall time with 8 reference engines: the default placement near saturation, an hour of 12,031
requests, and every placement under every order deep in overload (30 QPS, about three times the fleet's capacity).
Prompts are cut to 20,480 tokens; without a trace the rows are generated.
"""

from __future__ import annotations

import time
from pathlib import Path

from bench.report import Target, command_line, write_report
from routing.policy.policy_document import Stage
from routing.registry import stage_pairs
from simulator.baselines.registry import PLACEMENTS
from simulator.runs.run_report import report_of
from simulator.runs.simulation_run import RunSpec, evaluation_policy, run
from simulator.workloads.conversation_like import generate
from simulator.workloads.prepared_workload import Workload
from simulator.workloads.trace import TraceRow, read_trace

ENGINES, MAX_INPUT, HOUR, ROWS = 8, 20_480, 12_031, 4_000
ROUNDS = 3


def spec(placement: str, order: str, qps: float) -> RunSpec:
    """Return a run with the settings of the scheduling study."""
    return RunSpec(policy=evaluation_policy(Stage(name=placement), Stage(name=order)), engines=ENGINES, qps=qps)


def requests_per_s(workload: Workload, run_spec: RunSpec, rounds: int = 1) -> float:
    """Return the best of some rounds, including the time for the report."""
    best = 0.0
    for _ in range(rounds):
        started = time.perf_counter()
        report_of(run_spec, workload, run(run_spec, workload), 0.0)
        best = max(best, len(workload) / (time.perf_counter() - started))
    return best


def hour_s(rows: list[TraceRow]) -> float:
    """Return the seconds for the whole hour, from rows to report."""
    started = time.perf_counter()
    workload = Workload(rows, max_input=MAX_INPUT)
    run_spec = spec("least_cost", "fifo", 10.0)
    report_of(run_spec, workload, run(run_spec, workload), 0.0)
    return time.perf_counter() - started


def main() -> None:
    """Measure and write the figures."""
    parser = command_line("simulate_speed", __doc__)
    parser.add_argument("--trace", type=Path, default=None, help="Mooncake JSONL trace (default: generated)")
    arguments = parser.parse_args()
    rows = generate(HOUR, 7) if arguments.trace is None else read_trace(arguments.trace, HOUR)
    workload = Workload(rows[:ROWS], max_input=MAX_INPUT)
    figures = {
        "least_cost_fifo_requests_per_s": requests_per_s(workload, spec("least_cost", "fifo", 10.0), ROUNDS),
        "least_cost_slack_requests_per_s": requests_per_s(workload, spec("least_cost", "slack", 12.0), ROUNDS),
        "hour_s": hour_s(rows),
    }
    overload = {
        f"overload_{placement}_{order}_requests_per_s": requests_per_s(workload, spec(placement, order, 30.0))
        for placement, order in stage_pairs(PLACEMENTS)
    }
    figures["overload_slowest_requests_per_s"] = min(overload.values())
    targets = {
        "least_cost_fifo_requests_per_s": Target(value=figures["least_cost_fifo_requests_per_s"], op=">=", target=5000),
        "least_cost_slack_requests_per_s": Target(
            value=figures["least_cost_slack_requests_per_s"], op=">=", target=2000
        ),
        "hour_s": Target(value=figures["hour_s"], op="<", target=4.0),
        "overload_slowest_requests_per_s": Target(
            value=figures["overload_slowest_requests_per_s"], op=">=", target=500
        ),
    }
    rounded = {key: round(value, 3) for key, value in {**figures, **overload}.items()}
    write_report("simulate_speed", rounded, targets, arguments.json)


if __name__ == "__main__":
    main()
