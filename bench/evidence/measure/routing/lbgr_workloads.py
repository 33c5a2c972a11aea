"""LBGR and RLT on multi-turn chats and on questions about documents (LBGR §5, Figs. 2 and 4; Table 3's throughput).

The generators' defaults are App. A's lengths. ShareGPT and UltraChat have one shape there, which `multi_turn_chat` has.
"""

from __future__ import annotations

from typing import Any

import msgspec

from bench.evidence.cells import run_all
from bench.evidence.measure.routing.shared_prefix import PAPER, RULES, SPEED
from bench.evidence.shared_prefix_runs import CACHE_TOKENS, ENGINES, SLO_TTFT_S, SharedPrefixRun, figures, profile_of
from bench.evidence.store import Result, Row, measured
from routing.policy.policy_document import Stage
from simulator.runs.simulation_run import RunSpec, evaluation_policy, run
from simulator.workloads.prepared_workload import Workload
from simulator.workloads.registry import generate_workload
from simulator.workloads.trace import BLOCK_TOKENS

SEEDS = (21, 22, 23)
SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "chats": ("multi_turn_chat", {}),
    "documents": ("document_qa", {}),
    "documents in turn": ("document_qa", {"order": "round_robin"}),
    "one engine": ("gsp", {"groups": 64, "order": "round_robin"}),
}
"""Name → workload and its settings. The last one is Table 3's."""
COMPARED = ("random + LRU", *PAPER, "least_cost + LRU")


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    setting: str
    rule: str
    seed: int


def measure(jobs: int) -> Result:
    """Run all rules in all settings."""
    asked = [
        Asked(setting=setting, rule=rule, seed=seed)
        for setting in SETTINGS
        for rule in (COMPARED if setting != "one engine" else ("cache-aware + LRU", "cache-aware + RLT"))
        for seed in SEEDS
    ]
    settings = {
        "workloads": SETTINGS,
        "engines": ENGINES,
        "cache_tokens": CACHE_TOKENS,
        "tokens_per_s": SPEED,
        "block_tokens": BLOCK_TOKENS,
        "seeds": list(SEEDS),
    }
    rows = run_all(run_one, asked, jobs=jobs, title="chats and documents")
    return measured(name="lbgr_workloads", settings=settings, rows=rows)


def run_one(asked: Asked) -> Row:
    """Run one rule in one setting."""
    workload, values = SETTINGS[asked.setting]
    rule = RULES[asked.rule]
    engines = SharedPrefixRun(
        placement=rule.placement, eviction=rule.eviction, tokens_per_s=SPEED, block_tokens=BLOCK_TOKENS
    )
    profile = profile_of(engines)
    requests = Workload(generate_workload(workload, seed=asked.seed, settings=values), seed=asked.seed)
    policy = evaluation_policy(
        Stage(name=rule.placement, params=rule.params), Stage(name=rule.order), ttft_slo_s=SLO_TTFT_S, profile=profile
    )
    count = 1 if asked.setting == "one engine" else ENGINES
    simulation = run(RunSpec(policy=policy, engines=count, profile=profile, seed=asked.seed), requests)
    named: Row = msgspec.to_builtins(asked)
    return named | figures(requests, simulation)
