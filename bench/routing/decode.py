"""Goodput of co-located engines by both objectives under several rules: `python -m bench.routing.decode`.

Goodput is the largest rate at which 90 % of the requests after the warm-up meet TTFT and TPOT objectives. Engines mix
chunked prefill with decode. The rules of a row serve the same requests: the default, the previous default, and the
published rules of other routers, with their own defaults, which dispatch at once. Needs the traces. Deterministic.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec

from bench.evidence.cells import run_all
from bench.evidence.traces import MAX_INPUT, trace_file
from bench.report import Target, command_line, write_report
from routing.policy.dispatch_limit_document import DispatchLimitDocument
from routing.policy.policy_document import RoutingPolicy, Stage
from simulator.engine_models.engine_profile import PROFILES, EngineProfile, read_profile
from simulator.runs.goodput import find_goodput
from simulator.runs.simulation_run import RunSpec, run
from simulator.workloads.arrival_pattern import ArrivalPattern
from simulator.workloads.prepared_workload import Workload
from simulator.workloads.registry import generate_workload
from simulator.workloads.trace import BLOCK_TOKENS

DEFAULT, FORMER_DEFAULT = "least_cost", "former_default"
RIVALS = ("dynamo_kv", "llmd_weighted", "sglang_cache_aware", "production_stack_load_aware")
RULES = (DEFAULT, FORMER_DEFAULT, *RIVALS)
PROFILE_NAMES = ("reference", "h200-8b")
TTFT_SLO_S = 5.0
TPOT_SLO_S = {"reference": 0.1, "h200-8b": 0.05}
ENGINES, WARMUP = 8, 500
ROWS = {"conversation": 2500, "toolagent_like": 3500, "hot_prefix": 3000, "near_capacity": 3500}
"""Workload → requests. The first two are traces."""
GENERATED: dict[str, tuple[str, dict[str, object]]] = {
    # One prefix of 9,216 tokens, questions of 512, and answers of 600.
    "hot_prefix": ("gsp", {"groups": 1, "prompts": 3000, "lengths": [9728], "ratio": 0.948, "output_tokens": 600}),
    # At 12 requests per second and 60 seconds between turns, the KV of live sessions fills the engines' memory.
    "near_capacity": (
        "multi_turn_chat",
        {"sessions": 0, "user_tokens": 3072, "output_tokens": 400, "think_s": 60.0, "qps": 12.0},
    ),
}
FIRST_QPS = {"conversation": 8.0, "toolagent_like": 12.0, "hot_prefix": 20.0, "near_capacity": 10.0}


class Cell(msgspec.Struct, frozen=True):
    """One rule over one workload on one kind of engine."""

    profile: str
    workload: str
    rule: str

    @property
    def row(self) -> str:
        """Name of the cell's row in the comparison."""
        return f"{self.profile}_{self.workload}"


@cache
def workload(name: str) -> Workload:
    """Return the requests of one row."""
    if name in GENERATED:
        kind, settings = GENERATED[name]
        return Workload(generate_workload(kind, rows=ROWS[name], settings=settings))
    return Workload.read(trace_file(name), requests=ROWS[name], max_input=MAX_INPUT)


def profile_of(name: str) -> EngineProfile:
    """Return the engine profile, with the traces' block size."""
    profile = read_profile(Path(PROFILES) / f"{name}.json")
    blocks = profile.num_blocks * profile.block_tokens // BLOCK_TOKENS
    return msgspec.structs.replace(profile, num_blocks=blocks, block_tokens=BLOCK_TOKENS)


def spec_of(cell: Cell) -> RunSpec:
    """Return the run of a cell. All rules get exact estimates."""
    profile = profile_of(cell.profile)
    own = cell.rule in (DEFAULT, FORMER_DEFAULT)
    policy = RoutingPolicy(
        placement=Stage(name="least_cost" if own else cell.rule),
        order=Stage(name="late_last", params={"forget_blocks": True}) if own else Stage(name="fifo"),
        dispatch_limit=DispatchLimitDocument() if own else DispatchLimitDocument(mode="blind"),
        ttft_slo_s=TTFT_SLO_S,
        tpot_slo_s=TPOT_SLO_S[cell.profile],
        prefill_cost=profile.prefill_cost,
        decode_cost=profile.decode_cost,
        queue_limit=1_000_000,
        max_wait_s=3600.0,
    )
    if cell.rule == FORMER_DEFAULT:
        policy = msgspec.structs.replace(policy, decode_weight=0.0, prefill_window_tokens=2048)
    return RunSpec(
        policy=policy,
        engines=ENGINES,
        qps=FIRST_QPS[cell.workload],
        warmup=WARMUP,
        # The traces' times are rounded to 3 s: 20 prompts at once would make answers of 3 tokens late at any rate.
        arrivals=ArrivalPattern() if cell.workload in GENERATED else ArrivalPattern(kind="poisson"),
        engine_model="chunked",
        profile=profile,
        slo_tpot_s=TPOT_SLO_S[cell.profile],
    )


def goodput(cell: Cell) -> float:
    """Return the cell's goodput in requests per second."""
    return find_goodput(spec_of(cell), workload(cell.workload)).by_requests


def hot_prefix_shares(profile: str, qps: float) -> list[float]:
    """Return each engine's share of the hot prefix's requests, largest first."""
    spec = msgspec.structs.replace(spec_of(Cell(profile, "hot_prefix", DEFAULT)), engines=2, qps=qps)
    records = run(spec, workload("hot_prefix")).history[WARMUP:]
    counts = [sum(record.engine_id == name for record in records) for name in {record.engine_id for record in records}]
    return sorted((count / len(records) for count in counts), reverse=True)


def main() -> None:
    """Search all goodputs and compare."""
    parser = command_line("decode", __doc__)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--rows", nargs="+", default=None, help="only these rows, named profile_workload")
    parser.add_argument("--rules", nargs="+", default=RULES)
    options = parser.parse_args()
    cells = [Cell(profile, name, rule) for name in ROWS for profile in PROFILE_NAMES for rule in options.rules]
    cells = [item for item in cells if options.rows is None or item.row in options.rows]
    figures: dict[str, float] = {}
    for cell, qps in zip(cells, run_all(goodput, cells, jobs=options.jobs, title="goodput"), strict=True):
        figures[f"{cell.row}_{cell.rule}_qps"] = qps
    targets: dict[str, Target] = {}
    for row in dict.fromkeys(item.row for item in cells):
        of = {rule: figures[f"{row}_{rule}_qps"] for rule in options.rules}
        if DEFAULT in of and FORMER_DEFAULT in of:
            goal = 1.6 if row.endswith("hot_prefix") else 1.1
            ratio = round(of[DEFAULT] / of[FORMER_DEFAULT], 3)
            targets[f"{row}_over_former_default"] = Target(value=ratio, op=">=", target=goal)
        rivals = [of[rule] for rule in RIVALS if rule in of]
        if DEFAULT in of and rivals:
            ratio = round(of[DEFAULT] / max(rivals), 3)
            targets[f"{row}_over_best_rival"] = Target(value=ratio, op=">=", target=1.0)
    for profile in PROFILE_NAMES if options.rows is None and DEFAULT in options.rules else ():
        share = hot_prefix_shares(profile, figures[f"{profile}_hot_prefix_{DEFAULT}_qps"] / 4)[0]
        targets[f"{profile}_hot_prefix_larger_share_of_two"] = Target(value=round(share, 3), op="<=", target=0.6)
    write_report("decode", figures, targets, options.json)


if __name__ == "__main__":
    main()
