"""The Experiments page: what-ifs that were asked, how they stand, and the form that asks a new one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from controlplane.models import Pool, WhatIf
from controlplane.services.actor import Actor
from controlplane.services.field_problems import InvalidFieldsError
from controlplane.services.recordings import NoRoomError, delete_recording
from controlplane.services.whatifs import TooManyWaitError, WhatIfStanding, standings_of, start_whatif, visible_whatifs
from web.moments import Moment, moment
from web.no_role import lacks_role
from web.pages.access import asked, console_actor, sent
from web.pages.trial_page import (
    NO_POOL,
    Refusal,
    attempted,
    chosen_pool,
    is_creating,
    listed,
    needed_role,
    pool_form,
    trial_page,
)
from web.pages.whatif_form import asked_from, is_window, whatif_fields
from web.pages.whatif_words import finding


@dataclass(frozen=True, slots=True)
class WhatIfRow:
    """One what-if in the list."""

    standing: WhatIfStanding
    at: Moment | None
    kind: str
    """better, worse, mixed or even; empty: there is no answer."""
    words: str


@never_cache
@require_safe
def experiments(request: HttpRequest) -> HttpResponse:
    """List the what-ifs; with `new` beside the form that asks one."""
    return _page(request)


@never_cache
@require_POST
def start(request: HttpRequest) -> HttpResponse:
    """Ask a what-if, and lead to where its answer will be."""
    actor = console_actor(request)
    pool = chosen_pool(actor, sent(request, "pool"))
    if pool is None:
        return _page(request, NO_POOL)
    made = attempted(lambda: _started(request, pool, actor), NoRoomError, TooManyWaitError)
    if isinstance(made, Refusal):
        return _page(request, made)
    return redirect("whatif", whatif_id=made.pk)


def _started(request: HttpRequest, pool: Pool, actor: Actor) -> WhatIf:
    """Store the what-if; a window that was kept for it alone leaves where it cannot be asked."""
    recording, draft, base, conditions = asked_from(request.POST, pool, actor)
    try:
        return start_whatif(recording, draft, base, conditions, actor=actor, why=sent(request, "why"))
    except (InvalidFieldsError, TooManyWaitError):
        if is_window(request.POST):
            delete_recording(recording, actor=actor, why="the what-if could not be asked")
        raise


def _page(request: HttpRequest, refusal: Refusal | None = None) -> HttpResponse:
    now, actor = timezone.now(), console_actor(request)
    if is_creating(request) and (needed := needed_role(request, actor)):
        return lacks_role(request, "Experiments", needed, reverse("experiments"))
    page = listed(request, visible_whatifs(actor))
    standings = standings_of(list(page.object_list))
    rows = [_row(each, now) for each in standings]
    form = _form(request, actor, refusal) if is_creating(request) else {}
    waiting = sum(each.unfinished for each in standings)
    return trial_page(request, "whatifs", page, rows, refusal, waiting=waiting, **form)


def _form(request: HttpRequest, actor: Actor, refusal: Refusal | None) -> dict[str, Any]:
    draft, recording = asked(request, "draft"), asked(request, "recording")
    problems = refusal.problems if refusal else ()
    return pool_form(request, actor, lambda pool: whatif_fields(actor, pool, draft, recording), problems)


def _row(standing: WhatIfStanding, now: Any) -> WhatIfRow:
    whatif, result = standing.whatif, standing.result
    at = moment(whatif.created_at, now)
    if result is None:
        return WhatIfRow(standing, at, "", standing.reason if not standing.unfinished else "")
    found = finding(result, whatif.draft.number, whatif.against)
    return WhatIfRow(standing, at, found.kind, found.title)
