"""A pool on round robin with a proposal, made as the search job makes it from a planted result."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from controlplane.advice.models.advice_proposal import AdviceProposal, ProposalState
from controlplane.advice.search_child import SearchEngine, SearchResult, SearchTask
from controlplane.advice.search_job import store_result
from controlplane.fleet.models.pool import Pool
from controlplane.platform.actor import program
from controlplane.policies.publish import draft, publish_version
from planning.adviser.fleet_shape import FleetShape
from planning.adviser.prediction import OBJECTIVES, GroupChange, Practical, PredictedChange
from planning.adviser.trace_windows import TraceWindow, WindowPlan
from planning.adviser.verdict import Advice, PolicyCandidate
from routing.policy.policy_document import RoutingPolicy, Stage
from simulator.engine_models.engine_profile import EngineProfile
from simulator.runs.run_task import RunTask
from simulator.runs.simulation_run import RunSpec

ACTOR = program("test")
BETTER = RoutingPolicy(placement=Stage(name="least_cost"), order=Stage(name="late_last"))
ROUND_ROBIN = {"placement": {"name": "round_robin"}, "order": {"name": "fifo"}}
BEGIN = 1_800_000_000.0


def live_pool(pool: Pool, document: dict[str, Any] = ROUND_ROBIN) -> Pool:
    """Publish the document in the pool, and return it as stored."""
    pool.policy.refresh_from_db()
    live = pool.policy.live_version
    version = draft(pool.policy, document, actor=ACTOR)
    publish_version(version, instead_of=live.number if live else None, actor=ACTOR)
    return Pool.objects.select_related("policy__live_version").get(pk=pool.pk)


def window(number: int, kind: str = "further") -> TraceWindow:
    return TraceWindow(
        kind=kind, first=number * 100, last=number * 100 + 100, warmup=0, from_s=number * 300.0,
        to_s=number * 300.0 + 300, prompt_tokens_per_s=1000.0 + number, mean_prompt_tokens=2000.0,
        mean_output_tokens=100.0,
    )  # fmt: skip


def advice_with(policy: RoutingPolicy | None = BETTER, *, gain: float = 0.1, half: float = 0.02) -> Advice:
    """Return advice with this gain of the on-time share and of the TTFT; without a policy, an abstention."""
    changes = tuple(
        PredictedChange(
            item, 0.8 if item.kind == "share" else 2.0, 0.9, sign * gain, sign * gain - half, sign * gain + half,
            sign * gain + half / 4,
        )
        for item in OBJECTIVES[:4]
        if (sign := 0 if item.name == "rejected" else 1 if item.more_is_better else -3) is not None
    )  # fmt: skip
    candidate = PolicyCandidate(
        policy=policy or BETTER, fleet=FleetShape(4), costs=(),
        settings={"placement.name": "least_cost"}, changes=changes,
        worse=(GroupChange("tenant acme", 40, 0.9, 0.8), GroupChange("longest quarter of prompts", 90, 0.9, 0.85)),
        objections=() if policy else ("no objective improves by a practical size",),
    )  # fmt: skip
    plan = WindowPlan(
        search=(window(0, "busiest"), window(1, "quietest")),
        predict=(window(2), window(3)),
        check=(window(4),),
    )
    return Advice(
        proposal=candidate if policy else None,
        abstains="" if policy else "The best candidate was not confirmed: no objective improves by a practical size",
        rejected=() if policy else (candidate,), live=RoutingPolicy(), fleet=FleetShape(4), windows=plan, seeds=(0, 1),
        practical=Practical(), candidates=40, runs=90, cpu_s=120.0, budget_s=600.0, cut_short=False,
    )  # fmt: skip


def task_of(pool: Pool, end: float = BEGIN + 3600) -> SearchTask:
    live = pool.policy.live_version
    assert live is not None
    source = RunTask(trace="", requests=None, max_input=None, goodput=False, spec=RunSpec(policy=RoutingPolicy()))
    return SearchTask(
        pool=pool.slug, begin=end - 3600, end=end, version=live.number, source=source, file="",
        engines=(SearchEngine("chunked", EngineProfile()),), budget_s=600.0, jobs=1, practical=Practical(),
    )  # fmt: skip


def searched_for(pool: Pool, advice: Advice | None = None, end: float = BEGIN + 3600) -> dict[str, Any]:
    """Store the result of a search of the hour up to `end`, and return the outcome of its run."""
    result = SearchResult(
        advice=advice or advice_with(), begins_at=end - 3600, requests=3600, engines=4, engine_model="chunked",
        model_error=0.12,
    )  # fmt: skip
    pool = Pool.objects.select_related("policy__live_version").get(pk=pool.pk)
    return store_result(pool, task_of(pool, end), msgspec.convert(msgspec.to_builtins(result), SearchResult))


def proposed(pool: Pool, advice: Advice | None = None, end: float = BEGIN + 3600) -> AdviceProposal:
    """Return the open proposal of a search."""
    searched_for(pool, advice, end)
    return AdviceProposal.objects.select_related("pool__policy", "base", "version").get(state=ProposalState.OPEN)


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
