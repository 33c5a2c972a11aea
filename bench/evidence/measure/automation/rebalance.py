"""One prefix that becomes hot (DualMap §3.3, A.9): fixed and adaptive keys, with and without rebalancing."""

from __future__ import annotations

import random
from itertools import count

import msgspec

from bench.evidence.cells import run_all
from bench.evidence.store import Result, Row, measured
from planning.documents.automation_document import AutomationPolicy
from planning.documents.health_document import HealthDocument
from planning.documents.rebalance_document import RebalanceDocument
from planning.documents.scaling_document import ScalingDocument
from routing.policy.policy_document import Stage
from simulator.runs.run_report import on_time
from simulator.runs.run_task import plan_rows, run_automated
from simulator.runs.simulation_run import RunSpec, evaluation_policy
from simulator.workloads.arrival_pattern import poisson_times
from simulator.workloads.prepared_workload import Workload
from simulator.workloads.trace import BLOCK_TOKENS, TraceRow

ENGINES, QPS, SECONDS = 8, 18.0, 720.0
HOT_FROM_S, HOT_TO_S = 120.0, 480.0
HOT_SHARE = 0.5
"""Share of requests with the hot document while it is hot, which exceeds the capacity of two engines."""
HOT_BLOCKS, OWN_TOKENS, ORDINARY_TOKENS = 8, 3000, 4000
SLO_TTFT_S = 5.0


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run of DualMap."""

    adaptive: bool
    rebalance: bool
    seed: int = 1


RUNS = tuple(
    Run(adaptive=adaptive, rebalance=rebalance, seed=seed)
    for adaptive in (False, True)
    for rebalance in (False, True)
    for seed in (1, 2, 3)
)


def measure(jobs: int) -> Result:
    """Run all."""
    return measured(
        name="rebalance",
        settings={
            "engines": ENGINES,
            "qps": QPS,
            "hot_from_s": HOT_FROM_S,
            "hot_to_s": HOT_TO_S,
            "hot_share": HOT_SHARE,
            "hot_blocks": HOT_BLOCKS,
            "rebalance": msgspec.to_builtins(RebalanceDocument(mode="act")),
        },
        rows=run_all(run_one, RUNS, jobs=jobs, title="rebalance"),
    )


def hot_prefix(seed: int) -> list[TraceRow]:
    """Return distinct prompts, half of which begin with one document for a while."""
    rng, ids, rows = random.Random(seed), count(HOT_BLOCKS + 1), list[TraceRow]()
    hot = tuple(range(1, HOT_BLOCKS + 1))
    for at_s in poisson_times(rng, QPS):
        if at_s >= SECONDS:
            return rows
        is_hot = HOT_FROM_S <= at_s < HOT_TO_S and rng.random() < HOT_SHARE
        own = max(100, round(rng.gauss(OWN_TOKENS if is_hot else ORDINARY_TOKENS, 800)))
        prefix = hot if is_hot else ()
        tail = tuple(next(ids) for _ in range(-(-own // BLOCK_TOKENS)))
        rows.append(TraceRow(1000 * at_s, len(prefix) * BLOCK_TOKENS + own, 20, prefix + tail))
    return rows


def run_one(asked: Run) -> Row:
    """Run one fleet."""
    policy = AutomationPolicy(
        health=HealthDocument(mode="off"),
        rebalance=RebalanceDocument(mode="act" if asked.rebalance else "off"),
        scaling=ScalingDocument(mode="off"),
    )
    stage = Stage(name="dual_map", params={"adaptive_key": asked.adaptive})
    spec = RunSpec(
        policy=evaluation_policy(stage, Stage(name="fifo"), ttft_slo_s=SLO_TTFT_S), engines=ENGINES, seed=asked.seed
    )
    simulation, automation = run_automated(spec, Workload(hot_prefix(asked.seed), seed=asked.seed), policy)
    plans = plan_rows(automation)
    hot = [item for item in simulation.history if HOT_FROM_S <= item.request.arrived_s < HOT_TO_S]
    ttfts = sorted(item.ttft_s or 0.0 for item in hot)
    tokens = sum(item.request.prompt_tokens for item in hot)
    return {
        "adaptive": asked.adaptive,
        "rebalance": asked.rebalance,
        "seed": asked.seed,
        "requests": len(simulation.history),
        "on_time": sum(on_time(item, None) for item in hot) / len(hot),
        "ttft_p90_s": ttfts[int(0.9 * len(ttfts))],
        "hits": sum(item.hit_tokens or 0 for item in hot) / tokens,
        "mean_cv": simulation.samples.mean_cv,
        "migrations": sum(item.migrations for item in hot),
        "widened": sum(not plan.what.startswith("0 prefixes wider") for plan in plans),
        "still_wide": len(simulation.router.view.roster.widened),
        "plans": [
            [plan.at_s, plan.what, plan.why] for plan in plans if not plan.what.startswith("0 prefixes wider, 0 ")
        ],
    }
