"""`/api/v1/jobs`."""

from __future__ import annotations

from controlplane.job_runs import control as job_control
from controlplane.job_runs.reading import visible_runs
from controlplane.platform.api.listing import Listing, exact, moment, one_of
from controlplane.platform.api.strict_fields import ChangeBody, ModelShape
from controlplane.platform.api.views import Listed, Objects, ObjectView, Verb, by_method
from controlplane.platform.models.job_run import JobRun, JobState


class JobRunShape(ModelShape):
    """One background run."""

    class Meta:
        model = JobRun
        fields = (
            "id",
            "job",
            "shard",
            "state",
            "inputs",
            "plan",
            "progress",
            "outcome",
            "lease_owner",
            "lease_until",
            "cancel_requested_at",
            "cancel_requested_by",
            "retry_of",
            "started_at",
            "finished_at",
        )


class _Runs(Objects):
    noun = "jobs"
    shape = JobRunShape
    rows = staticmethod(visible_runs)
    field = "pk"


class JobRuns(_Runs, Listed):
    """List runs, newest first."""

    listing = Listing(
        {"started_at": ("started_at", "pk")},
        "-started_at",
        {
            "job": exact("job", "Name of the job."),
            "state": one_of("state", JobState.values, "State of the run."),
            "since": moment("started_at__gte", "Runs that started at this time or later."),
            "until": moment("started_at__lt", "Runs that started before this time."),
        },
    )


class OneJobRun(_Runs, ObjectView):
    """One run."""

    says = by_method(GET="Return the run.")


class _RunChange(_Runs, Verb):
    bodies = by_method(POST=ChangeBody)


class JobCancellation(_RunChange):
    """Request the end of the run. Its holder notices at its next lease renewal."""

    verb = staticmethod(job_control.cancel)


class JobRetry(_RunChange):
    """Start a new run with the same inputs."""

    verb = staticmethod(job_control.retry)
    answers = by_method(POST=(201, JobRunShape))
