"""`/api/v1/jobs`."""

from __future__ import annotations

from collections.abc import Callable

from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.job_runs import control as job_control
from controlplane.job_runs.reading import visible_runs
from controlplane.job_runs.shape import JobRunShape
from controlplane.platform.api.base import ApiView, by_method, taken_why
from controlplane.platform.api.filters import exact, moment, one_of
from controlplane.platform.api.listing import Listing
from controlplane.platform.api.strict_fields import Change
from controlplane.platform.models.job_run import JobRun, JobState


class JobRuns(ApiView):
    """All runs of jobs."""

    noun = "jobs"
    shape = JobRunShape
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

    def get(self, request: Request) -> Response:
        """List runs, the newest first."""
        return self.show_page(visible_runs(self.actor))


class OneJobRun(ApiView):
    """One run."""

    noun = "jobs"
    shape = JobRunShape

    def get(self, request: Request, *, run: int) -> Response:
        """Return the run."""
        return self.show(visible_runs(self.actor).get(pk=run))


class _RunChange(ApiView):
    noun = "jobs"
    shape = JobRunShape
    bodies = by_method(POST=Change)

    def control(self, run: int, verb: Callable[..., JobRun], status: int) -> Response:
        """Carry out a verb on the run."""
        found, body = visible_runs(self.actor).get(pk=run), self.body()
        return self.show(verb(found, actor=self.actor, why=taken_why(body)), status)


class JobCancellation(_RunChange):
    """The end of one run, asked for."""

    def post(self, request: Request, *, run: int) -> Response:
        """Ask the run to end; its holder hears of it within its lease."""
        return self.control(run, job_control.cancel, 200)


class JobRetry(_RunChange):
    """One run, once more."""

    answers = by_method(POST=(201, JobRunShape))

    def post(self, request: Request, *, run: int) -> Response:
        """Start a new run with the same inputs."""
        return self.control(run, job_control.retry, 201)
