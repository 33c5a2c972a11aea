"""The policy editor: a form next to its JSON, the version history, and one next step at a time."""

from __future__ import annotations

from datetime import datetime
from typing import Any, cast

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from controlplane.platform.format import iso
from controlplane.policies.document.text import MAX_TEXT_BYTES
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.policies.publish import draft as store_draft
from controlplane.policies.reading import PolicyAccess
from web.policies.access import UNPROCESSABLE, opened, rejected, version_named, version_number
from web.policies.editor.draft_form import DraftForm, form_as_typed, form_of_version, ready_to_publish, ready_to_store
from web.policies.editor.page import render_editor
from web.policies.questions import (
    PUBLISH,
    ROLL_BACK,
    ConfirmDialog,
    publish_question,
    roll_back_question,
    second_person,
)
from web.shell.console_request import console_actor, with_query

MAX_POLICIES = 8
"""Maximum number of policies whose text a session keeps; the oldest is dropped first."""

_KEY = "policy_texts"
_FIELDS = ("document", "message", "base", "draft")


def keep(request: HttpRequest, slug: str, posted: QueryDict, text: str, at: datetime) -> None:
    """Keep the typed text until it is stored or discarded. Text too long for a policy is not kept."""
    if len(text.encode(errors="replace")) > MAX_TEXT_BYTES:
        return
    kept = {name: posted.get(name, "")[:MAX_TEXT_BYTES] for name in _FIELDS}
    texts = {name: item for name, item in _texts(request).items() if name != slug}
    # Removed above and added at the end: the first of the table are dropped first.
    texts[slug] = {**kept, "document": text, "at": iso(at.timestamp())}
    request.session[_KEY] = dict(list(texts.items())[-MAX_POLICIES:])


def kept_text(request: HttpRequest, slug: str) -> dict[str, str] | None:
    """Return the kept text of the policy, with `at` in ISO 8601; None if there is none."""
    return _texts(request).get(slug)


def forget(request: HttpRequest, slug: str) -> None:
    """Drop the kept text of the policy."""
    texts = _texts(request)
    if slug in texts:
        # A new object: Django stores a session in which a value was set, not one in which it was changed.
        request.session[_KEY] = {name: item for name, item in texts.items() if name != slug}


def _texts(request: HttpRequest) -> dict[str, dict[str, str]]:
    stored: Any = request.session.get(_KEY)
    return cast("dict[str, dict[str, str]]", stored) if isinstance(stored, dict) else {}


CHECK, SAVE, DISCARD = "check", "save", "discard"
"""The actions of the editor's buttons, besides PUBLISH."""


@require_http_methods(["GET", "HEAD", "POST"])
def policy(request: HttpRequest, slug: str) -> HttpResponse:
    """Show the editor; on POST check the typed document, and store it if requested and valid."""
    state = opened(request, slug)
    return _changed(request, state) if request.method == "POST" else _shown(request, state)


def _shown(request: HttpRequest, state: PolicyAccess) -> HttpResponse:
    if request.GET.get("ask") in (PUBLISH, ROLL_BACK) and not state.may_publish:
        return rejected(request, state)
    number = version_number(request.GET.get("draft"))
    draft = version_named(state, request.GET.get("draft"))
    form = form_of_version(state.live, draft)
    if draft is not None and draft.published_at is None and form.stale and request.GET.get("ask") == PUBLISH:
        return redirect(with_query(reverse("policy-merge", args=[state.policy.slug]), draft=draft.number))
    said = f"There is no v{number}; this is the live version." if number is not None and draft is None else ""
    kept = kept_text(request, state.policy.slug)
    if draft is None and kept is not None and state.may_draft:
        form = _kept_form(state, kept)
    return render_editor(request, state, form, question=_question(request, state, draft), said=said)


def _kept_form(state: PolicyAccess, kept: dict[str, str]) -> DraftForm:
    posted = QueryDict(mutable=True)
    posted.update({name: text for name, text in kept.items() if name in {"document", "message", "base"}})
    return form_as_typed(state.live, None, posted, kept_at=kept.get("at", ""))


def _question(request: HttpRequest, state: PolicyAccess, draft: PolicyVersion | None) -> ConfirmDialog | None:
    """Return the dialog that the URL names."""
    asked = request.GET.get("ask")
    if asked == PUBLISH and draft is not None and draft.published_at is None:
        actor = console_actor(request)
        return publish_question(state, draft, actor, second=second_person(state, draft, actor))
    version = version_named(state, request.GET.get("version")) if asked == ROLL_BACK else None
    if version is None or version.published_at is None or version.number == state.live_number:
        return None
    return roll_back_question(state, version)


def _changed(request: HttpRequest, state: PolicyAccess) -> HttpResponse:
    slug, wanted = state.policy.slug, request.POST.get("do", CHECK)
    if not state.may_draft or (wanted == PUBLISH and not state.may_publish):
        return rejected(request, state)
    if wanted == DISCARD:
        forget(request, slug)
        return redirect(reverse("policy", args=[slug]))
    form = form_as_typed(state.live, version_named(state, request.POST.get("draft")), request.POST)
    if wanted != CHECK:
        form = ready_to_publish(form) if wanted == PUBLISH else ready_to_store(form)
    if wanted == CHECK or form.wrong:
        # An invalid text is set aside, so that neither a reload nor a visit to another page loses it.
        keep(request, slug, request.POST, form.text, timezone.now())
        return render_editor(request, state, form, status=UNPROCESSABLE if form.wrong else 200)
    return _stored(request, state, form, publish=wanted == PUBLISH)


def _stored(request: HttpRequest, state: PolicyAccess, form: DraftForm, *, publish: bool) -> HttpResponse:
    """Store the typed document as a draft, or keep the opened draft if nothing changed; redirect to the next step."""
    version = form.draft if form.says_its_draft else None
    if version is None:
        version = store_draft(
            state.policy, form.document, actor=console_actor(request), message=form.message, based_on=form.base
        )
    slug = state.policy.slug
    forget(request, slug)
    if publish and form.stale:
        return redirect(with_query(reverse("policy-merge", args=[slug]), draft=version.number))
    ask = PUBLISH if publish else None
    return redirect(with_query(reverse("policy", args=[slug]), draft=version.number, ask=ask))
