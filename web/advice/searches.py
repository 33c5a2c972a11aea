"""Each pool's last and next search in words, for the inbox and the empty record."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from controlplane.advice.models.advice_proposal import AdviceProposal
from controlplane.advice.proposals import JOB
from controlplane.advice.search_schedule import BUDGET_S, LEAST_SPAN_S, NextSearch, is_tried, next_search
from controlplane.fleet.models.pool import Pool
from controlplane.platform.actor import Actor
from controlplane.platform.format import Moment, moment, roughly
from controlplane.platform.models.job_run import JobRun, JobState
from controlplane.platform.role import Role
from controlplane.platform.roles import may
from controlplane.request_log.store.segments import recorded_span

NEEDS = f"at least {roughly(LEAST_SPAN_S)} of recorded traffic, and at most {roughly(BUDGET_S)} of CPU time"
"""What each search needs, in words."""


def pool_rows(
    pools: list[Pool], waiting: Iterable[AdviceProposal], actor: Actor, now: datetime
) -> list[dict[str, Any]]:
    """Return each pool with its newest and its next search; `waiting` are the proposals without an outcome."""
    runs = JobRun.objects.filter(job=JOB, shard__in=[pool.pk for pool in pools]).order_by("pk")
    newest = {run.shard: run for run in runs}
    span, tried = recorded_span(), {item.pool_id for item in waiting if is_tried(item)}
    rows = []
    for pool in pools:
        run = newest.get(pool.pk)
        following = next_search(pool, run, span, now, tried=pool.pk in tried)
        rows.append(
            {
                "pool": pool,
                "run": run,
                "at": moment(run.started_at, now) if run is not None else None,
                "searching": run is not None and run.state == JobState.ACTIVE,
                "next": following,
                "next_at": _next_at(following, now),
                "may_search": may(actor, Role.OPERATOR, pool),
                **_run_words(run),
            }
        )
    return rows


def first_search(rows: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the row of the pool that is searched first; None if none has a time."""
    return min((row for row in rows if row["next"].at is not None), key=lambda row: row["next"].at, default=None)


def _next_at(following: NextSearch, now: datetime) -> Moment | None:
    return None if following.at is None or following.at <= now else moment(following.at, now)


def _run_words(run: JobRun | None) -> dict[str, Any]:
    outcome = run.outcome if run is not None and isinstance(run.outcome, dict) else {}
    progress = run.progress if run is not None and isinstance(run.progress, dict) else {}
    return {"done": progress.get("done", 0), "outcome": outcome.get("summary") or outcome.get("reason") or ""}
