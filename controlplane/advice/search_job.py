"""The leased job that searches for better policies: one pool at a time per process, in a child process, once a day."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from celery import shared_task
from django.conf import settings
from django.db import transaction
from django.utils import timezone

from controlplane.advice.evidence import CalibratedAdvice, calibrated, digest_of
from controlplane.advice.measuring import widening_of
from controlplane.advice.models.advice_proposal import AdviceProposal, ProposalState
from controlplane.advice.proposals import ADVISER, JOB, moved, on_evidence_of, settle
from controlplane.advice.search_child import SearchEngine, SearchResult, SearchTask
from controlplane.advice.search_schedule import BUDGET_S, LEAST_SPAN_S, is_tried, pause_after
from controlplane.fleet.models.pool import AdviceMode, Pool, PoolMode
from controlplane.platform import audit
from controlplane.platform.actor import Actor
from controlplane.platform.conflict import ConflictError
from controlplane.platform.jobs.calculation import LEASE, RunWatch, end_in_any_case, run_watched, start_calculation
from controlplane.platform.jobs.cooperative_stop import stop_requested
from controlplane.platform.jobs.lease import Lease, finish, take_waiting
from controlplane.platform.jobs.one_at_a_time import one_at_a_time
from controlplane.platform.models.job_run import JobRun, JobState
from controlplane.platform.role import Role
from controlplane.platform.roles import require
from controlplane.policies.document.problems import InvalidPolicyError
from controlplane.policies.publish import draft
from controlplane.policies.upgrade import live_routing_of
from controlplane.request_log.store.segments import recorded_span
from controlplane.trials.whatif.engine_candidate import (
    as_it_would_route,
    engine_candidates,
    pool_engines,
)
from planning.adviser.autopilot import UNSETTLED
from planning.adviser.prediction import Practical
from routing.values.prepared_struct import prepared
from simulator.child_task import ChildTaskError
from simulator.runs.run_task import RunTask
from simulator.runs.simulation_run import RunSpec

MAX_S = 4 * 3600.0
"""A search yields the CPU to everything else, so that its CPU time may take long."""
LONGEST = timedelta(days=1)
MODELS = ("chunked", "colocated")


@shared_task(name="controlplane.advice", ignore_result=True)
@one_at_a_time
def advice() -> None:
    """Start the searches that are due, and carry out those that wait, one after another."""
    start_due(timezone.now())
    while not stop_requested.is_set() and (leases := take_waiting(JOB, LEASE)):
        end_in_any_case(leases[0], _search, (ChildTaskError, InvalidPolicyError))


def start_due(now: datetime) -> int:
    """Start the search of each pool that was not searched for EVERY and has an hour of recorded traffic."""
    span = recorded_span()
    if span is None or span[1] - span[0] < LEAST_SPAN_S:
        return 0
    started = 0
    wanted = Pool.objects.filter(mode=PoolMode.ROUTE, policy__live_version__isnull=False)
    for pool in wanted.exclude(advice=AdviceMode.OFF).select_related("policy__live_version"):
        if _is_due(pool, now) and not on_trial(pool):
            started += start_search(pool) is not None
    return started


def search_now(pool: Pool, *, actor: Actor, why: str = "") -> JobRun:
    """Search this pool's recorded traffic now, and return the run.

    Raises NotAllowedError unless the actor operates the pool, and ConflictError while its proposal is on trial, while a
    search runs, or without a live version.
    """
    require(actor, Role.OPERATOR, pool)
    if pool.policy.live_version is None or pool.mode != PoolMode.ROUTE:
        raise ConflictError("Headway routes nothing in this pool yet.")
    if (proposal := on_trial(pool)) is not None:
        raise ConflictError(f"Proposal {proposal.pk} is on trial; wait until that has ended.")
    with transaction.atomic():
        run = start_search(pool)
        if run is None:
            raise ConflictError("A search of this pool is running; wait until it has ended.")
        audit.record(actor, "advice.search", "pool", pool.slug, why=why, pool=pool.slug)
    return run


def on_trial(pool: Pool) -> AdviceProposal | None:
    """Return the pool's proposal if a shadow or a canary tries it."""
    current = AdviceProposal.objects.filter(pool=pool, state__in=UNSETTLED).select_related("shadow").first()
    return current if current is not None and is_tried(current) else None


def start_search(pool: Pool, **limits: Any) -> JobRun | None:
    """Store a waiting run for the pool; None while one is active. `limits` replace fields of the task."""
    task = msgspec.structs.replace(search_task(pool, timezone.now()), **limits)
    try:
        return start_calculation(JOB, msgspec.to_builtins(task), shard=pool.pk)
    except ConflictError:
        return None


def search_task(pool: Pool, now: datetime) -> SearchTask:
    """Return what to search for. Traffic before the last rejection of a proposal is no new evidence."""
    live = pool.policy.live_version
    if live is None:
        raise ConflictError("The pool has no live version.")
    routing = live_routing_of(live)
    known = pool_engines(pool)
    likely = engine_candidates(routing, known.learned, known.kv_tokens, MODELS)
    spec = RunSpec(
        policy=as_it_would_route(routing, known.learned),
        engines=max(1, known.ready),
        engine_model=likely[0].engine_model,
        profile=likely[0].profile,
        counted_slo_s=routing.ttft_slo_s,
        kv_nodes=known.kv_nodes,
    )
    return SearchTask(
        pool=pool.slug,
        begin=_since(pool, now).timestamp(),
        end=now.timestamp(),
        version=live.number,
        source=RunTask(trace="", requests=None, max_input=None, goodput=False, spec=spec),
        file=str(settings.STATE_DIR / "advice" / f"{pool.slug}.jsonl.gz"),
        engines=tuple(SearchEngine(item.engine_model, item.profile) for item in likely),
        budget_s=BUDGET_S,
        jobs=1,
        practical=Practical(share=pool.advice_on_time_gain / 100, ratio=pool.advice_ttft_gain / 100),
    )


def _since(pool: Pool, now: datetime) -> datetime:
    against = (ProposalState.REJECTED, ProposalState.CONTRADICTED)
    last = AdviceProposal.objects.filter(pool=pool, state__in=against).order_by("-evidence_until").first()
    return max(now - LONGEST, last.evidence_until) if last is not None else now - LONGEST


def _is_due(pool: Pool, now: datetime) -> bool:
    last = JobRun.objects.filter(job=JOB, shard=pool.pk).order_by("-pk").first()
    if last is None:
        return True
    return last.state != JobState.ACTIVE and last.started_at <= now - pause_after(last)


def _search(lease: Lease) -> None:
    run = JobRun.objects.get(pk=lease.run_id)
    pool = Pool.objects.select_related("policy__live_version").filter(pk=run.shard).first()
    if pool is None:
        finish(lease, outcome={"reason": "the pool was deleted"}, state=JobState.ABANDONED)
        return
    watch = RunWatch(lease)
    encoded = run_watched(watch, "controlplane.advice.search_child", msgspec.json.encode(run.inputs), MAX_S)
    if encoded is None:
        return
    task = msgspec.convert(run.inputs, prepared(SearchTask))
    result = msgspec.json.decode(encoded, type=prepared(SearchResult))
    with transaction.atomic():
        outcome = store_result(pool, task, result)
        if not finish(watch.lease, outcome=outcome):
            # A holder that lost its lease stores nothing.
            transaction.set_rollback(True)


def store_result(pool: Pool, task: SearchTask, result: SearchResult) -> dict[str, Any]:
    """Store a proposal or an abstention, settle the one before, and return the outcome of the run."""
    live = pool.policy.live_version
    if result.advice is None:
        return {"summary": f"Nothing was searched: {result.short}.", "short": True}
    if live is None or live.number != task.version:
        return {"summary": f"v{task.version} is no longer live; the next search is against the live version."}
    if on_trial(pool) is not None:
        return {"summary": "The proposal before is on trial, so this one was not stored."}
    advised = calibrated(result, result.advice, widening_of(pool))
    document = {**live.document, **msgspec.to_builtins(_changed(advised, live.routing_document))}
    digest = digest_of(live.number, document if advised.proposal else None, advised.evidence)
    if advised.proposal is not None and _known(pool, digest):
        return {"summary": "The same evidence was rejected before."}
    stored = AdviceProposal(
        pool=pool, base=live, digest=digest, evidence=msgspec.to_builtins(advised.evidence), created_at=timezone.now(),
        evidence_until=datetime.fromtimestamp(task.end, UTC), ended_by=ADVISER.name,
    )  # fmt: skip
    before = AdviceProposal.objects.select_related("version", "pool", "base").filter(pool=pool, state__in=UNSETTLED)
    if advised.proposal is None:
        for current in before:
            settle(
                current,
                ProposalState.WITHDRAWN,
                actor=ADVISER,
                reason=f"New windows do not confirm it: {advised.abstains}",
            )
        stored.state, stored.reason, stored.ended_at = (
            ProposalState.ABSTAINED,
            advised.abstains[:400],
            stored.created_at,
        )
        stored.save()
        audit.record_for(ADVISER, "advice.abstain", stored, after={"state": stored.state.value}, why=advised.abstains)
        return {"summary": f"No proposal. {advised.abstains}.", "proposal": stored.pk}
    for current in before:
        settle(current, ProposalState.SUPERSEDED, actor=ADVISER, reason="A newer search proposes something else.")
    stored.document = document
    stored.save()
    stored.version = draft(pool.policy, document, actor=ADVISER, message=on_evidence_of(stored))
    moved(
        stored, ProposalState.OPEN, "advice.propose", actor=ADVISER, reason="", version=stored.version,
    )  # fmt: skip
    return {"summary": f"Proposal {stored.pk}: v{stored.version.number}.", "proposal": stored.pk}


def _changed(advised: CalibratedAdvice, live: dict[str, Any]) -> dict[str, Any]:
    """Return the routing document with the settings that the proposal changes, and everything else as it is.

    The simulated policy has learned costs, which are no settings of the pool.
    """
    if advised.proposal is None:
        return {}
    proposed = msgspec.to_builtins(advised.proposal.policy)
    kept = ("prefill_cost", "decode_cost")
    return {name: live.get(name, value) if name in kept else value for name, value in proposed.items()}


def _known(pool: Pool, digest: str) -> bool:
    against = (ProposalState.REJECTED, ProposalState.CONTRADICTED, ProposalState.WITHDRAWN)
    return AdviceProposal.objects.filter(pool=pool, state__in=against, digest=digest).exists()
