"""Job runs in words: names, states, progress, outcome, and evidence."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from controlplane.job_runs.control import OF_POOLS
from controlplane.platform.format import ago, count, duration, moment
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.models.job_run import JobRun, JobState
from controlplane.trials.whatif.lifecycle import JOB as WHATIF
from web.automation.job_descriptions import job_description

_COUNTED = {
    "engines": "engine",
    "shards": "shard",
    "journals": "usage journal",
    "budgets": "budget",
    "attempts": "message sent,messages sent",
    "steps": "step",
    "open": "open incident",
    "rows_of_10_s": "row of 10 s,rows of 10 s",
    "of_120_s": "row of 2 min,rows of 2 min",
    "dropped_batches": "dropped batch,dropped batches",
}
"""Name of a number in a run's progress or outcome → its noun; other names follow their number, as in "8 reachable"."""
_SHAPES = {
    JobState.DONE: "serving",
    JobState.FAILED: "lost",
    JobState.ABANDONED: "degraded",
    JobState.CANCELLED: "maintenance",
}
_MAX_WORDS = 160


def run_row(run: JobRun, now: datetime, pools: Mapping[int, str]) -> dict[str, Any]:
    """Return what lists and the drawer show about a run; `pools` are names by row number."""
    done, of = share_done(run.progress)
    end = run.finished_at or now
    return {
        "run": run,
        "title": job_description(run.job).title,
        "does": job_description(run.job).does,
        "when": job_description(run.job).when,
        "about": _about(run, pools),
        "state": state_words(run, now),
        "shape": shape(run, now),
        "started": moment(run.started_at, now),
        "took": duration(max(0.0, (end - run.started_at).total_seconds())),
        "progress": progress_words(run.progress),
        "done": done,
        "of": of,
        "holder": _process(run.lease_owner) if _is_held(run, now) else "",
        "rest": _rest(run, now),
        "rested": _process(run.lease_owner) if run.lease_until and run.lease_owner else "",
        "outcome": outcome_words(run),
        "inputs": _shown(run.inputs),
        "plan": _shown(run.plan),
        "result": _shown(run.outcome),
        "active": run.state == JobState.ACTIVE,
        "ending": run.state == JobState.ACTIVE and run.cancel_requested_at is not None,
    }


def _process(owner: str) -> str:
    """Return a lease owner (host:process:thread) in words."""
    return ", process ".join(owner.split(":")[:2])


def _rest(run: JobRun, now: datetime) -> str:
    """Return when a run that no process holds last ran."""
    return "not yet" if run.lease_until is None else ago((now - run.lease_until).total_seconds())


def _about(run: JobRun, pools: Mapping[int, str]) -> str:
    """Return which engine, pool, what-if, or shard the run works on; empty if the job has only one subject."""
    if isinstance(run.inputs, Mapping) and run.inputs.get("engine"):
        return str(run.inputs["engine"])
    if run.job in OF_POOLS and run.shard in pools:
        return f"pool {pools[run.shard]}"
    kind = "what-if" if run.job == WHATIF else "shard"
    return f"{kind} {run.shard}" if run.shard else ""


def state_words(run: JobRun, now: datetime) -> str:
    """Return the run's state: running, idle between rounds, waiting for its first round, ending, or how it ended."""
    if run.state != JobState.ACTIVE:
        return str(run.state)
    if run.cancel_requested_at is not None:
        return "ending"
    if _is_held(run, now):
        return "running"
    return "waiting" if run.lease_until is None else "idle"


def shape(run: JobRun, now: datetime) -> str:
    """Return the shape that matches the state word."""
    if run.state == JobState.ACTIVE:
        shapes = {"running": "serving", "idle": "serving", "waiting": "starting", "ending": "draining"}
        return shapes[state_words(run, now)]
    return _SHAPES[JobState(run.state)]


def share_done(progress: Any) -> tuple[int, int]:
    """Return the completed steps and all steps; (0, 0) if the run does not count steps."""
    if not isinstance(progress, Mapping):
        return 0, 0
    done, of = progress.get("done"), progress.get("of", progress.get("total"))
    if not isinstance(done, int) or not isinstance(of, int) or of <= 0:
        return 0, 0
    return max(0, min(done, of)), of


def progress_words(progress: Any) -> str:
    """Return the progress in words, such as "3 of 7" or "8 engines, 8 reachable"."""
    done, of = share_done(progress)
    if of:
        return f"{done:,} of {of:,}"
    if not isinstance(progress, Mapping):
        return ""
    numbers = [_number_words(name, value) for name, value in progress.items() if type(value) in (int, float)]
    return ", ".join(numbers)[:_MAX_WORDS]


def _number_words(name: str, value: float) -> str:
    return count(int(value), *_COUNTED[name].split(",")) if name in _COUNTED else f"{value:,} {name.replace('_', ' ')}"


def outcome_words(run: JobRun) -> str:
    """Return the outcome of the run in one line."""
    outcome = run.outcome if isinstance(run.outcome, Mapping) else {}
    for name in ("reason", "error", "summary", "remark"):
        if outcome.get(name):
            return str(outcome[name])[:_MAX_WORDS]
    words = [_number_words(name, value) for name, value in outcome.items() if type(value) in (int, float)]
    words += [f"{name.replace('_', ' ')}: {value}" for name, value in outcome.items() if isinstance(value, str)]
    return ", ".join(words)[:_MAX_WORDS]


def evidence(run: JobRun, events: Sequence[AuditEvent], now: datetime) -> list[dict[str, Any]]:
    """Return the recorded events of the run, oldest first."""
    facts = [
        _fact(
            run.started_at,
            now,
            "Started" if run.retry_of_id is None else f"Started, retry of run {run.retry_of_id}",
        )
    ]
    if run.cancel_requested_at is not None:
        facts.append(_fact(run.cancel_requested_at, now, f"{run.cancel_requested_by} requested cancellation"))
    verbs = {"job.cancel": "Cancel", "job.retry": "Retry"}
    for event in events:
        why = f": {event.why}" if event.why else ""
        facts.append(_fact(event.at, now, f"{verbs.get(event.verb, event.verb)} by {event.actor_name}{why}", event))
    if run.finished_at is not None:
        facts.append(_fact(run.finished_at, now, f"Ended: {run.state}"))
    return sorted(facts, key=lambda fact: fact["when"])


def _fact(when: datetime, now: datetime, text: str, event: AuditEvent | None = None) -> dict[str, Any]:
    return {"when": when, "at": moment(when, now), "text": text, "event": event}


def _is_held(run: JobRun, now: datetime) -> bool:
    return (
        run.state == JobState.ACTIVE and bool(run.lease_owner) and run.lease_until is not None and run.lease_until > now
    )


def _shown(value: Any) -> str:
    """Return a stored value as JSON; empty if there is none."""
    return json.dumps(value, indent=2, ensure_ascii=False) if value else ""
