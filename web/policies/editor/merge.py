"""The three-way view: the version on which a draft is based, the live version, and the draft."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from controlplane.platform.field_problems import FieldProblem
from controlplane.platform.format import moment_of
from controlplane.policies.document.merge import (
    BOTH,
    CONFLICT,
    MINE,
    THEIRS,
    ChangedEntry,
    UnresolvedConflictError,
    changed_entries,
    merged,
)
from controlplane.policies.document.problems import InvalidPolicyError
from controlplane.policies.document.schema import path_text
from controlplane.policies.document.text import completed
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.policies.publish import draft as store_draft
from controlplane.policies.reading import PolicyAccess, version_of
from web.policies.access import PRECONDITION_FAILED, UNPROCESSABLE, known_version, opened, rejected
from web.policies.words import author_of, title_and_unit, value_words
from web.shell.console_request import console_actor, with_query
from web.shell.frame import shell_context

_SIDES = (THEIRS, MINE)
_FIELD = "choice."


@require_http_methods(["GET", "HEAD", "POST"])
def merge(request: HttpRequest, slug: str) -> HttpResponse:
    """Show a draft of an older version next to the live one; on POST store a merged draft."""
    state = opened(request, slug)
    given = request.POST if request.method == "POST" else request.GET
    draft = known_version(state, given.get("draft"))
    if request.method != "POST":
        if draft.based_on == state.live_number:
            return redirect(with_query(reverse("policy", args=[slug]), draft=draft.number))
        return render_merge(request, state, draft)
    if not state.may_draft:
        return rejected(request, state)
    choices = {name.removeprefix(_FIELD): value for name, value in request.POST.items() if name.startswith(_FIELD)}
    if request.POST.get("theirs", "") != str(state.live_number or ""):
        # A third person published while this view was open: choices made against the old version are asked for again.
        return render_merge(request, state, draft, status=PRECONDITION_FAILED, again=True)
    return _merged(request, state, draft, choices)


def _merged(request: HttpRequest, state: PolicyAccess, draft: PolicyVersion, choices: dict[str, str]) -> HttpResponse:
    """Store the selected values as a new draft, or report what is missing or inconsistent."""
    try:
        document = merged(*_sides(state, draft), choices)
        both = store_draft(
            state.policy,
            document,
            actor=console_actor(request),
            message=draft.message,
            based_on=state.live_number,
        )
    except UnresolvedConflictError as error:
        return render_merge(request, state, draft, choices=choices, unresolved=error.paths, status=UNPROCESSABLE)
    except InvalidPolicyError as error:
        # Each side is valid, and yet the chosen values of both may be inconsistent.
        return render_merge(request, state, draft, choices=choices, problems=error.field_problems, status=UNPROCESSABLE)
    return redirect(with_query(reverse("policy", args=[state.policy.slug]), draft=both.number))


def render_merge(
    request: HttpRequest,
    state: PolicyAccess,
    draft: PolicyVersion,
    *,
    choices: dict[str, str] | None = None,
    unresolved: tuple[str, ...] = (),
    problems: tuple[FieldProblem, ...] = (),
    status: int = 200,
    again: bool = False,
) -> HttpResponse:
    """Return the three-way view of a draft against the live version."""
    changes = changed_entries(*_sides(state, draft))
    rows = [_row(change, choices or {}, unresolved) for change in changes]
    live = state.live
    mine = sum(row["side"] in (MINE, CONFLICT, BOTH) for row in rows)
    context = shell_context(
        request,
        page="Policies",
        state=state,
        draft=draft,
        live=live,
        who=author_of(live) if live else "Another person",
        when=moment_of(live.published_at or live.created_at, timezone.now()) if live else None,
        rows=rows,
        conflicts=sum(row["side"] == CONFLICT for row in rows),
        mine_count=mine,
        unresolved=[row for row in rows if row["unresolved"]],
        problems=problems,
        again=again,
    )
    return render(request, "policies/merge.html", context, status=status)


def _sides(state: PolicyAccess, draft: PolicyVersion) -> tuple[Any, Any, Any]:
    base = version_of(state.policy, draft.based_on) if draft.based_on is not None else None
    return (
        completed(base.document if base else {}),
        completed(state.live.document if state.live else {}),
        completed(draft.document),
    )


def _row(change: ChangedEntry, choices: dict[str, str], unresolved: tuple[str, ...]) -> dict[str, Any]:
    """Return one value that either side changed, with the selected choice, which is empty if a person must choose."""
    path, side = path_text(change.path), change.side
    by_itself = "" if side == CONFLICT else THEIRS if side in (THEIRS, BOTH) else MINE
    chosen = choices.get(path, "")
    title, unit = title_and_unit(change.path)
    return {
        "path": path,
        "title": title,
        **{name: value_words(getattr(change, name), unit) for name in ("base", "theirs", "mine")},
        "side": side,
        "choice": chosen if chosen in _SIDES else by_itself,
        "unresolved": path in unresolved,
    }
