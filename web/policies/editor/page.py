"""Renders the editor page in every state: opened, checked, rejected, or with a dialog."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from controlplane.advice.proposals import waiting_for
from controlplane.fleet.ready_engines import ready_engines
from controlplane.manifests.ownership import managers_by_field
from controlplane.platform.role import Role
from controlplane.platform.roles import may
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.policies.reading import PolicyAccess, versions_of
from controlplane.policies.release_timeline_facts import timelines_of
from controlplane.policies.scheduled_publishes import newest_schedule
from controlplane.policies.upgrade import deviation_note
from controlplane.trials.canary.lifecycle import running_canary
from routing.policy.policy_document import SCHEMA_VERSION
from web.policies.access import version_number
from web.policies.editor.draft_form import MAX_MESSAGE, DraftForm
from web.policies.questions import ConfirmDialog, requests_per_s
from web.policies.release_timeline import line_of, strip_of
from web.policies.rollout import reach_of
from web.policies.schedule_words import schedule_line
from web.policies.version_rail import rail_of
from web.policies.words import version_facts
from web.shell.console_request import asked, console_actor
from web.shell.frame import shell_context


def render_editor(
    request: HttpRequest,
    state: PolicyAccess,
    form: DraftForm,
    *,
    question: ConfirmDialog | None = None,
    status: int = 200,
    said: str = "",
) -> HttpResponse:
    """Return the editor's page; `question` opens a dialog, `said` is a message at the top."""
    now = timezone.now()
    versions = versions_of(state.policy, below=version_number(request.GET.get("below")))
    number = form.draft.number if form.draft else None
    published = version_number(request.GET.get("published"))
    version = form.draft or state.live
    release_timeline = timelines_of(state.policy, [version], console_actor(request))[version.pk] if version else ()
    is_draft = form.draft is not None and form.draft.published_at is None
    canary = running_canary(state.policy)
    strip = (
        strip_of(release_timeline, state, version.number, now, canary_runs=canary is not None)
        if version and is_draft
        else ()
    )
    context = shell_context(
        request,
        page="Policies",
        state=state,
        strip=strip,
        against=any(step.against for step in release_timeline) and is_draft,
        line=() if is_draft else line_of(release_timeline, now),
        shown=version,
        may_give_up=state.may_publish and may(console_actor(request), Role.ADMIN),
        schedule=schedule_line(newest_schedule(state.policy), state, now),
        form=form,
        rail=rail_of(state, versions, now, opened=number),
        live=version_facts(state.live, now),
        draft=version_facts(form.draft, now),
        next_number=_next_number(form, versions),
        engines=ready_engines(state.pools),
        requests_per_s=requests_per_s(state),
        canary=canary,
        proposal=waiting_for(state.policy),
        replaced=deviation_note(state.live.document) if state.live else "",
        question=question,
        managed=managers_by_field(state.policy),
        said=said,
        deleted=version_number(request.GET.get("deleted")),
        asks=asked(request, "ask") if not question else "",
        may_delete=is_draft and (state.may_publish or (state.may_draft and _is_own(request, form.draft))),
        reach=reach_of(state, published) if published is not None else None,
        schema_version=SCHEMA_VERSION,
        max_message=MAX_MESSAGE,
    )
    return render(request, "policies/editor.html", context, status=status)


def _is_own(request: HttpRequest, draft: PolicyVersion | None) -> bool:
    user = console_actor(request).user
    return draft is not None and user is not None and draft.author_id == user.pk


def _next_number(form: DraftForm, versions: list[PolicyVersion]) -> int:
    if form.draft is not None and form.draft.published_at is None:
        return form.draft.number
    return max((version.number for version in versions), default=0) + 1
