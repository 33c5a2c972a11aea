"""When the adviser searches a pool next, and what the search waits for. Imports no simulator, so that pages can."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from controlplane.advice.models.advice_proposal import AdviceProposal, ProposalState
from controlplane.fleet.models.pool import AdviceMode, Pool, PoolMode
from controlplane.platform.models.job_run import JobRun
from controlplane.trials.models.shadow import ShadowState

BUDGET_S = 600.0
"""CPU seconds of one search."""
EVERY = timedelta(days=1)
AGAIN = timedelta(hours=1)
"""After a run that had too little traffic."""
LEAST_SPAN_S = 3600.0
"""Recorded traffic that a search needs."""


@dataclass(frozen=True, slots=True)
class NextSearch:
    """The pool's next search: its expected time, or what it waits for."""

    at: datetime | None
    """None: no time is known."""
    waits: str = ""
    """What it waits for besides the time, in words."""
    missing_s: float = 0.0
    """Seconds of traffic still to be recorded."""


def pause_after(run: JobRun) -> timedelta:
    """Return the time from the start of this run to the next search."""
    return AGAIN if isinstance(run.outcome, dict) and run.outcome.get("short") else EVERY


def is_tried(proposal: AdviceProposal) -> bool:
    """Return whether a shadow or a canary tries the proposal."""
    shadow = proposal.shadow
    tried = shadow is not None and shadow.state == ShadowState.RUNNING
    return tried or proposal.state == ProposalState.IN_CANARY


def next_search(
    pool: Pool, last: JobRun | None, span: tuple[float, float] | None, now: datetime, *, tried: bool
) -> NextSearch:
    """Return when the pool is searched next. `span` is the recorded time, `tried` whether its proposal is on trial."""
    if pool.advice == AdviceMode.OFF:
        return NextSearch(None, "never by itself: the adviser is off")
    if pool.mode != PoolMode.ROUTE or pool.policy.live_version_id is None:
        return NextSearch(None, "when Headway routes this pool")
    if tried:
        return NextSearch(None, "when the trial of its proposal has ended")
    recorded_s = span[1] - span[0] if span is not None else 0.0
    missing_s = max(0.0, LEAST_SPAN_S - recorded_s)
    due = now if last is None else max(now, last.started_at + pause_after(last))
    return NextSearch(max(due, now + timedelta(seconds=missing_s)), missing_s=missing_s)
