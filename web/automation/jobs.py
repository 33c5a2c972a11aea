"""The Jobs page: running and finished runs, and why runs failed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from controlplane.fleet.visibility import visible_pools
from controlplane.job_runs import control as job_control
from controlplane.job_runs.reading import visible_runs
from controlplane.platform.actor import Actor
from controlplane.platform.format import moment
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.models.job_run import JobRun, JobState
from controlplane.platform.role import Role
from controlplane.platform.roles import NotAllowedError, may
from web.automation.job_descriptions import job_description
from web.automation.job_words import evidence, run_row
from web.shell.console_request import asked, console_actor, go, kept, listed, row_number, why
from web.shell.frame import shell_context

ADDRESS = "/jobs"
PAGE_ROWS = 50
ACTIVE_ROWS = 200
EVENT_ROWS = 20
FAILED = (JobState.FAILED, JobState.ABANDONED)
SAID = {
    "cancelling": "Cancellation requested. The process that runs it stops within seconds.",
    "cancelled": "The run has ended.",
    "retried": "A new run with the same inputs starts at the job's next scheduled time.",
}


@require_safe
def jobs(request: HttpRequest) -> HttpResponse:
    """Show running runs first, then finished runs, and the selected run."""
    return _page(request)


@require_POST
def cancel_run(request: HttpRequest, run_id: int) -> HttpResponse:
    """Request that a run end."""
    return _control(request, run_id, job_control.cancel)


@require_POST
def retry_run(request: HttpRequest, run_id: int) -> HttpResponse:
    """Start a new run with the same inputs."""
    return _control(request, run_id, job_control.retry)


def _control(request: HttpRequest, run_id: int, verb: Callable[..., JobRun]) -> HttpResponse:
    """Apply the action and show the resulting run."""
    actor = console_actor(request)
    run = get_object_or_404(visible_runs(actor), pk=run_id)
    try:
        after = verb(run, actor=actor, why=why(request))
    except (job_control.JobControlError, NotAllowedError) as error:
        return _page(request, opened=run, problem=str(error), status=_status(error))
    said = "retried" if after.pk != run_id else "cancelled" if after.state == JobState.CANCELLED else "cancelling"
    return go(ADDRESS, run=str(after.pk), said=said)


def _status(error: Exception) -> int:
    return 403 if isinstance(error, NotAllowedError) else 409


def _page(request: HttpRequest, *, opened: JobRun | None = None, problem: str = "", status: int = 200) -> HttpResponse:
    now, actor = timezone.now(), console_actor(request)
    job, failed = asked(request, "job", 64), "failed" in request.GET
    runs = visible_runs(actor)
    wanted = runs.filter(job=job) if job else runs
    active = [] if failed else list(wanted.filter(state=JobState.ACTIVE).order_by("job", "shard")[:ACTIVE_ROWS])
    page = listed(request, _ended(wanted, failed=failed), PAGE_ROWS)
    if opened is None and (run_id := row_number(request.GET.get("run"))) is not None:
        opened = runs.filter(pk=run_id).first()
    link = {"job": job, **({"failed": "1"} if failed else {})}
    pools = dict(visible_pools(actor).values_list("pk", "name"))
    context = shell_context(
        request,
        page="Jobs",
        active=[run_row(run, now, pools) for run in active],
        rows=[run_row(run, now, pools) for run in page.object_list],
        paging=page,
        job=job,
        # order_by() drops the model's ordering, whose columns would be part of DISTINCT.
        names=[
            (name, job_description(name).title)
            for name in sorted(set(runs.order_by().values_list("job", flat=True).distinct()))
        ],
        failed=failed,
        failed_day=runs.filter(state__in=FAILED, finished_at__gte=now - timedelta(days=1)).count(),
        problem=problem,
        said=SAID.get(request.GET.get("said", ""), ""),
        opened=_opened(actor, opened, pools) if opened else None,
        filters=kept(**link).removesuffix("&"),
        keep=kept(**link),
        fragment=_fragment(request, opened),
        at=moment(now, now),
    )
    part = "automation/jobs_live.html" if "fragment" in request.GET else "automation/jobs.html"
    return render(request, part, context, status=status)


def _ended(runs: QuerySet[JobRun], *, failed: bool) -> QuerySet[JobRun]:
    ended = runs.filter(state__in=FAILED) if failed else runs.exclude(state=JobState.ACTIVE)
    return ended.order_by("-started_at", "-pk")


def _opened(actor: Actor, run: JobRun, pools: Mapping[int, str]) -> dict[str, Any]:
    now = timezone.now()
    events = AuditEvent.objects.filter(object_kind="job_run", object_id=str(run.pk)).order_by("at", "id")[:EVENT_ROWS]
    return {
        **run_row(run, now, pools),
        "evidence": evidence(run, list(events), now),
        "may_control": may(actor, Role.OPERATOR, job_control.pool_of(run)),
    }


def _fragment(request: HttpRequest, opened: JobRun | None) -> str:
    """Return the URL from which the page refreshes itself."""
    kept = {name: request.GET[name] for name in ("job", "failed", "page", "run") if name in request.GET}
    if opened is not None:
        kept["run"] = str(opened.pk)
    return f"{ADDRESS}?{urlencode({**kept, 'fragment': '1'})}"
