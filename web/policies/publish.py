"""Publishing a draft and rolling back: the responses to the editor's two dialogs."""

from __future__ import annotations

from dataclasses import replace

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_POST

from controlplane.platform.field_problems import InvalidFieldsError
from controlplane.platform.roles import NotAllowedError
from controlplane.policies.approvals import NotApprovedError
from controlplane.policies.document.problems import InvalidPolicyError
from controlplane.policies.document.text import completed
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.policies.publish import StalePolicyError, publish_version, roll_back
from controlplane.policies.reading import PolicyAccess
from controlplane.policies.scheduled_publishes import ScheduleError, schedule_publish
from web.policies.access import (
    CONFLICT,
    PRECONDITION_FAILED,
    UNPROCESSABLE,
    known_version,
    opened,
    rejected,
    version_number,
)
from web.policies.editor.draft_form import form_of_version, with_problems
from web.policies.editor.merge import render_merge
from web.policies.editor.page import render_editor
from web.policies.questions import (
    LATER,
    NOW,
    PUBLISH,
    ConfirmDialog,
    mistyped,
    publish_question,
    roll_back_question,
    second_person,
    unexplained,
)
from web.policies.rollout import version_watch
from web.policies.schedule_words import NO_TIME, read_moment
from web.policies.words import author_of
from web.shell.console_request import console_actor, why, with_query


@require_POST
def publish(request: HttpRequest, slug: str) -> HttpResponse:
    """Make a draft live; 412 with the three-way view if another version was published in the meantime."""
    state, version = _asked(request, slug)
    if not state.may_publish:
        return rejected(request, state)
    if version.number == state.live_number:
        # The second click of a double click: the version is already live.
        return _published(slug, version)
    question = _as_answered(request, state, version)
    if problem := mistyped(question, request.POST.get("typed", "").strip()) or unexplained(question):
        return _asked_again(request, state, problem, UNPROCESSABLE)
    return (_scheduled if question.when == LATER else _published_now)(request, state, question)


def _published_now(request: HttpRequest, state: PolicyAccess, question: ConfirmDialog) -> HttpResponse:
    version, slug = question.version, state.policy.slug
    # The watch must receive samples before the version arrives, or its time of arrival is unknown.
    version_watch()
    try:
        # Only the version on which the draft is based may be replaced; a newer one is merged first.
        reason = question.why or version.message
        publish_version(version, instead_of=version.based_on, actor=console_actor(request), why=reason)
    except NotApprovedError as error:
        return _asked_again(request, state, replace(question, rejection=str(error)), CONFLICT)
    except (StalePolicyError, NotAllowedError, InvalidPolicyError) as error:
        return _not_published(request, slug, version, error)
    return _published(slug, version)


def _as_answered(request: HttpRequest, state: PolicyAccess, version: PolicyVersion) -> ConfirmDialog:
    """Return the dialog with the submitted values."""
    actor = console_actor(request)
    question = publish_question(state, version, actor, second=second_person(state, version, actor))
    when = LATER if request.POST.get("when") == LATER else NOW
    return replace(question, when=when, at=request.POST.get("at", question.at)[:40], why=why(request))


def _scheduled(request: HttpRequest, state: PolicyAccess, question: ConfirmDialog) -> HttpResponse:
    """Store the scheduled publish, and redirect to the draft, whose page shows it."""
    version, slug = question.version, state.policy.slug
    at = read_moment(question.at)
    if at is None:
        return _asked_again(request, state, replace(question, at_problem=NO_TIME), UNPROCESSABLE)
    actor = console_actor(request)
    try:
        schedule_publish(version, at, instead_of=version.based_on, actor=actor, why=question.why or version.message)
    except InvalidFieldsError as error:
        problem = " ".join(item.message for item in error.problems)
        return _asked_again(request, state, replace(question, at_problem=problem), UNPROCESSABLE)
    except ScheduleError as error:
        return _asked_again(request, state, replace(question, rejection=str(error)), CONFLICT)
    except (StalePolicyError, NotAllowedError, InvalidPolicyError) as error:
        return _not_published(request, slug, version, error)
    return redirect(with_query(reverse("policy", args=[slug]), draft=version.number))


def _asked_again(request: HttpRequest, state: PolicyAccess, question: ConfirmDialog, status: int) -> HttpResponse:
    form = form_of_version(state.live, question.version if question.kind == PUBLISH else None)
    return render_editor(request, state, form, question=question, status=status)


@require_POST
def go_back(request: HttpRequest, slug: str) -> HttpResponse:
    """Publish a copy of an older version; 412 with the dialog if another version was published meanwhile."""
    state, version = _asked(request, slug)
    if not state.may_publish:
        return rejected(request, state)
    instead_of = version_number(request.POST.get("instead_of"))
    live = state.live
    # The second click of a double click: the copy is live already.
    if live and live.based_on == instead_of and completed(live.document) == completed(version.document):
        return _published(slug, live)
    question = replace(roll_back_question(state, version), why=why(request))
    if problem := unexplained(question):
        return _asked_again(request, state, problem, UNPROCESSABLE)
    version_watch()
    try:
        actor = console_actor(request)
        copy = roll_back(state.policy, version.number, instead_of=instead_of, actor=actor, why=why(request))
    except StalePolicyError as error:
        state = opened(request, slug)
        who = f"{author_of(error.live)} published v{error.live.number}" if error.live else "Another version went live"
        said = f"{who} while this dialog was open. Nothing was rolled back; review the live version, then repeat."
        question = roll_back_question(state, version) if version.number != state.live_number else None
        form = form_of_version(state.live, None)
        return render_editor(request, state, form, question=question, said=said, status=PRECONDITION_FAILED)
    except (NotAllowedError, InvalidPolicyError) as error:
        return _not_published(request, slug, version, error)
    return _published(slug, copy)


def _not_published(request: HttpRequest, slug: str, version: PolicyVersion, error: Exception) -> HttpResponse:
    """Return the page that reports why the version did not go live and how to resolve it."""
    state = opened(request, slug)
    if isinstance(error, InvalidPolicyError):
        form = with_problems(form_of_version(state.live, version), error.field_problems)
        return render_editor(request, state, form, status=UNPROCESSABLE)
    if isinstance(error, StalePolicyError):
        return render_merge(request, state, version, status=PRECONDITION_FAILED)
    return rejected(request, state, str(error))


def _published(slug: str, version: PolicyVersion) -> HttpResponse:
    return redirect(with_query(reverse("policy", args=[slug]), published=version.number))


def _asked(request: HttpRequest, slug: str) -> tuple[PolicyAccess, PolicyVersion]:
    """Return the policy and the version of the dialog."""
    state = opened(request, slug)
    return state, known_version(state, request.POST.get("version"))
