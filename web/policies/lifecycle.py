"""The answers about approvals and appointments: approve, withdraw, call off, and whether approval is asked for."""

from __future__ import annotations

from collections.abc import Callable

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_POST

from controlplane.platform.revisions import StaleRevisionError
from controlplane.platform.roles import NotAllowedError
from controlplane.policies.approvals import CannotApproveError, approve, withdraw_approval
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.policies.publish import change_policy
from controlplane.policies.reading import PolicyStanding
from controlplane.policies.scheduled_publishes import ScheduleError, cancel_schedule, waiting_schedule
from web.policies.access import CONFLICT, PRECONDITION_FAILED, known_version, opened, rejected, version_number
from web.policies.editor.draft_form import form_of_version
from web.policies.editor.page import render_editor
from web.policies.questions import PUBLISH
from web.shell.console_request import console_actor, with_query


@require_POST
def give_approval(request: HttpRequest, slug: str) -> HttpResponse:
    """Approve a version that somebody else wrote."""
    return _decided(request, slug, approve)


@require_POST
def take_approval_back(request: HttpRequest, slug: str) -> HttpResponse:
    """Withdraw one's own approval."""
    return _decided(request, slug, withdraw_approval)


@require_POST
def cancel_publish(request: HttpRequest, slug: str) -> HttpResponse:
    """Call the policy's appointment off."""
    standing = opened(request, slug)
    schedule = waiting_schedule(standing.policy)
    if not standing.may_publish:
        return rejected(request, standing)
    if schedule is None:
        return _said(request, standing, "Nothing is scheduled; there was nothing to cancel.", CONFLICT)
    try:
        cancel_schedule(schedule, actor=console_actor(request))
    except ScheduleError as error:
        return _said(request, standing, str(error), CONFLICT)
    return redirect(with_query(reverse("policy", args=[slug]), draft=schedule.version.number))


@require_POST
def set_approval_rule(request: HttpRequest, slug: str) -> HttpResponse:
    """Ask for a second person before versions go live, or give that up."""
    standing = opened(request, slug)
    wanted, revision = request.POST.get("needs_approval"), version_number(request.POST.get("revision"))
    if wanted not in ("on", "off") or revision is None:
        raise Http404("No such setting.")
    changes = {"needs_approval": wanted == "on"}
    try:
        change_policy(standing.policy, changes, actor=console_actor(request), expected=revision)
    except NotAllowedError as error:
        return rejected(request, standing, str(error))
    except StaleRevisionError:
        said = "The policy changed while this page was open. Nothing was changed; review it and repeat."
        return _said(request, opened(request, slug), said, PRECONDITION_FAILED)
    return redirect(reverse("policy", args=[slug]))


def _decided(request: HttpRequest, slug: str, decide: Callable[..., object]) -> HttpResponse:
    standing = opened(request, slug)
    version = known_version(standing, request.POST.get("version"))
    if not standing.may_publish:
        return rejected(request, standing)
    try:
        decide(version, actor=console_actor(request))
    except CannotApproveError as error:
        return _said(request, standing, str(error), CONFLICT, version)
    return redirect(with_query(reverse("policy", args=[slug]), draft=version.number, ask=PUBLISH))


def _said(
    request: HttpRequest, standing: PolicyStanding, said: str, status: int, version: PolicyVersion | None = None
) -> HttpResponse:
    return render_editor(request, standing, form_of_version(standing.live, version), said=said, status=status)
