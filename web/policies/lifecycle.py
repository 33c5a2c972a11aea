"""The forms for drafts, approvals and scheduled publishes: delete, approve, withdraw, cancel, require approval."""

from __future__ import annotations

from collections.abc import Callable

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_POST

from controlplane.platform.conflict import ConflictError
from controlplane.platform.revisions import StaleRevisionError
from controlplane.platform.roles import NotAllowedError
from controlplane.policies.approvals import CannotApproveError, approve, withdraw_approval
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.policies.publish import change_policy, delete_draft
from controlplane.policies.reading import PolicyAccess
from controlplane.policies.scheduled_publishes import ScheduleError, cancel_schedule, waiting_schedule
from web.policies.access import CONFLICT, PRECONDITION_FAILED, known_version, opened, rejected, version_number
from web.policies.editor.draft_form import form_of_version
from web.policies.editor.editing import forget
from web.policies.editor.page import render_editor
from web.policies.questions import PUBLISH
from web.shell.console_request import console_actor, go, why, with_query


@require_POST
def give_approval(request: HttpRequest, slug: str) -> HttpResponse:
    """Approve a version that another person wrote."""
    return _decided(request, slug, approve)


@require_POST
def take_approval_back(request: HttpRequest, slug: str) -> HttpResponse:
    """Withdraw the person's own approval."""
    return _decided(request, slug, withdraw_approval)


@require_POST
def cancel_publish(request: HttpRequest, slug: str) -> HttpResponse:
    """Cancel the policy's scheduled publish."""
    state = opened(request, slug)
    schedule = waiting_schedule(state.policy)
    if not state.may_publish:
        return rejected(request, state)
    if schedule is None:
        return _said(request, state, "Nothing is scheduled; there was nothing to cancel.", CONFLICT)
    try:
        cancel_schedule(schedule, actor=console_actor(request), why=why(request))
    except ScheduleError as error:
        return _said(request, state, str(error), CONFLICT)
    return redirect(with_query(reverse("policy", args=[slug]), draft=schedule.version.number))


@require_POST
def set_approval_rule(request: HttpRequest, slug: str) -> HttpResponse:
    """Require approval by a second person before versions go live, or stop requiring it."""
    state = opened(request, slug)
    wanted, revision = request.POST.get("needs_approval"), version_number(request.POST.get("revision"))
    if wanted not in ("on", "off") or revision is None:
        raise Http404("No such setting.")
    changes = {"needs_approval": wanted == "on"}
    try:
        change_policy(state.policy, changes, actor=console_actor(request), expected=revision, why=why(request))
    except NotAllowedError as error:
        return rejected(request, state, str(error))
    except StaleRevisionError:
        said = "The policy changed while this page was open. Nothing was changed; review it and repeat."
        return _said(request, opened(request, slug), said, PRECONDITION_FAILED)
    return redirect(reverse("policy", args=[slug]))


@require_POST
def remove_draft(request: HttpRequest, slug: str) -> HttpResponse:
    """Delete a draft that never served a request."""
    state = opened(request, slug)
    version = known_version(state, request.POST.get("version"))
    try:
        delete_draft(version, actor=console_actor(request), why=why(request))
    except NotAllowedError as error:
        return rejected(request, state, str(error))
    except ConflictError as error:
        return _said(request, state, str(error), CONFLICT, version)
    forget(request, slug)
    return go(reverse("policy", args=[slug]), deleted=str(version.number))


def _decided(request: HttpRequest, slug: str, decide: Callable[..., object]) -> HttpResponse:
    state = opened(request, slug)
    version = known_version(state, request.POST.get("version"))
    if not state.may_publish:
        return rejected(request, state)
    try:
        decide(version, actor=console_actor(request))
    except CannotApproveError as error:
        return _said(request, state, str(error), CONFLICT, version)
    return redirect(with_query(reverse("policy", args=[slug]), draft=version.number, ask=PUBLISH))


def _said(
    request: HttpRequest, state: PolicyAccess, said: str, status: int, version: PolicyVersion | None = None
) -> HttpResponse:
    return render_editor(request, state, form_of_version(state.live, version), said=said, status=status)
