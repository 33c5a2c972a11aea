"""Starts what-ifs and reads their state. The job controlplane.trials.whatif.job runs them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
from django.db import models, transaction
from django.utils import timezone

from controlplane.platform import audit
from controlplane.platform.actor import Actor
from controlplane.platform.conflict import ConflictError
from controlplane.platform.field_problems import problem
from controlplane.platform.jobs.wake import wake
from controlplane.platform.models.job_run import JobRun, JobState
from controlplane.platform.role import Role
from controlplane.platform.roles import require
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.request_log.models.recording import Recording
from controlplane.trials.lifecycle import forget_ended, visible_trials
from controlplane.trials.models.whatif import WhatIf
from controlplane.trials.whatif.conditions import Conditions, plain
from controlplane.trials.whatif.result import WhatIfResult
from routing.registry import pair_problem
from routing.values.counted import count
from routing.values.prepared_struct import prepared
from simulator.baselines.registry import PLACEMENTS

JOB = "whatif"
"""The job, whose shard is the row of the what-if."""
LEAST_REQUESTS = 50
"""Minimum number of requests. Fewer give no reliable result."""
MAX_WAITING = 20
KEPT = 1000
"""Maximum number of stored what-ifs. The oldest are deleted first."""


class TooManyWaitError(ConflictError):
    """Too many what-ifs are queued."""


@dataclass(frozen=True, slots=True)
class WhatIfStatus:
    """State of a what-if."""

    whatif: WhatIf
    run: JobRun | None
    """Its newest run; None: deleted by housekeeping."""

    @property
    def state(self) -> str:
        """Return waiting, running, done, failed, or cancelled."""
        run = self.run
        if self.whatif.result is not None:
            return "done"
        if run is None:
            return "failed"
        if run.state == JobState.ACTIVE:
            return "running" if run.lease_owner and run.lease_until and run.lease_until > timezone.now() else "waiting"
        return "cancelled" if run.state == JobState.CANCELLED else "failed"

    @property
    def unfinished(self) -> bool:
        """Return whether the what-if waits or runs."""
        return self.state in ("waiting", "running")

    @property
    def share(self) -> float:
        """Return the finished share, 0..1."""
        progress = self.run.progress if self.run is not None else {}
        done = progress.get("done") if isinstance(progress, dict) else None
        return 1.0 if self.state == "done" else min(max(done, 0), 100) / 100 if isinstance(done, int) else 0.0

    @property
    def reason(self) -> str:
        """Return why there is no result."""
        if self.run is None:
            return "The run was deleted before it ended."
        outcome = self.run.outcome if isinstance(self.run.outcome, dict) else {}
        return str(outcome.get("reason") or "")

    @property
    def result(self) -> WhatIfResult | None:
        """Return the result."""
        return None if self.whatif.result is None else msgspec.convert(self.whatif.result, prepared(WhatIfResult))


def visible_whatifs(actor: Actor) -> models.QuerySet[WhatIf]:
    """Return the what-ifs of the pools that the actor may see."""
    whatifs = WhatIf.objects.select_related("pool__policy", "recording", "draft", "base", "author")
    return visible_trials(whatifs, actor)


def start_whatif(
    recording: Recording,
    draft: PolicyVersion,
    base: PolicyVersion | None,
    conditions: Conditions,
    *,
    actor: Actor,
    why: str = "",
) -> WhatIf:
    """Queue a comparison of the draft with the base (None: the live version) on the recording.

    Raises NotAllowedError unless the actor operates the recording's pool, InvalidFieldsError, and TooManyWaitError.
    """
    pool = recording.pool
    require(actor, Role.OPERATOR, pool)
    base = base or pool.policy.live_version
    if base is None:
        raise problem("base", "No version is live yet for comparison; name one.")
    for name, version in (("draft", draft), ("base", base)):
        if version.policy_id != pool.policy_id:
            raise problem(name, f"Is not a version of {pool.policy.slug}, the policy of pool {pool.slug}.")
    order = base.routing_document["order"]["name"]
    if conditions.base_placement and pair_problem(conditions.base_placement, order, PLACEMENTS):
        pulls = f"v{base.number} lets engines pull requests, but {conditions.base_placement} binds them first."
        raise problem("base", f"{pulls} Name a version with another queue order.")
    if recording.requests < LEAST_REQUESTS:
        few = f"Has {count(recording.requests, 'request')}; a what-if needs at least {LEAST_REQUESTS}."
        raise problem("recording", f"{few} Use a longer one.")
    if JobRun.objects.filter(job=JOB, state=JobState.ACTIVE).count() >= MAX_WAITING:
        raise TooManyWaitError(
            f"{MAX_WAITING} what-ifs are already waiting; cancel some under Jobs, or try again later."
        )
    return _stored(recording, draft, base, conditions, actor, why)


def status_of(whatif: WhatIf) -> WhatIfStatus:
    """Return the state of one what-if."""
    return statuses_of([whatif])[0]


def statuses_of(whatifs: list[WhatIf]) -> list[WhatIfStatus]:
    """Return the state of each what-if, from its newest run."""
    runs = {
        run.shard: run
        for run in JobRun.objects.filter(job=JOB, shard__in=[whatif.pk for whatif in whatifs]).order_by("pk")
    }
    done = {shard for shard, run in runs.items() if run.state == JobState.DONE}
    _take_results([whatif for whatif in whatifs if whatif.result is None and whatif.pk in done])
    return [WhatIfStatus(whatif, runs.get(whatif.pk)) for whatif in whatifs]


def _take_results(late: list[WhatIf]) -> None:
    """Read the results of what-ifs that finished after they were read."""
    if late:
        results = dict(WhatIf.objects.filter(pk__in=[item.pk for item in late]).values_list("pk", "result"))
        for item in late:
            item.result = results.get(item.pk)


def forget_whatifs(at_most: int = KEPT) -> int:
    """Delete the oldest what-ifs beyond `at_most`, but never an unfinished one. Return how many."""
    active = JobRun.objects.filter(job=JOB, state=JobState.ACTIVE).values("shard")
    return forget_ended(WhatIf, models.Q(pk__in=active), at_most)


def _stored(
    recording: Recording, draft: PolicyVersion, base: PolicyVersion, conditions: Conditions, actor: Actor, why: str
) -> WhatIf:
    now = timezone.now()
    with transaction.atomic():
        whatif = WhatIf.objects.create(
            pool=recording.pool,
            recording=recording,
            recording_name=recording.name,
            draft=draft,
            base=base,
            conditions=plain(conditions),
            author=actor.user,
        )
        inputs = _audit_fields(whatif)
        # A lease that has run out already: the next search for work takes the run.
        JobRun.objects.create(
            job=JOB, shard=whatif.pk, inputs=inputs, lease_until=now, fencing_token=1, started_at=now,
            progress={"done": 0, "of": 100},
        )  # fmt: skip
        wake([JOB])
        audit.record(actor, "whatif.start", "whatif", str(whatif.pk), after=inputs, why=why, pool=recording.pool.slug)
    return whatif


def _audit_fields(whatif: WhatIf) -> dict[str, Any]:
    return {
        "whatif": whatif.pk,
        "pool": whatif.pool.slug,
        "recording": whatif.recording_name,
        "draft": whatif.draft.number,
        "base": whatif.base.number,
        "conditions": whatif.conditions,
    }
