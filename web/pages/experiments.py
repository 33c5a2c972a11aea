"""The Experiments page: what-ifs that were asked, how they stand, and the form that asks a new one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from controlplane.models import Pool, Role, WhatIf
from controlplane.services.actor import Actor
from controlplane.services.field_problems import FieldProblem, InvalidFieldsError
from controlplane.services.recordings import NoRoomError, delete_recording
from controlplane.services.roles import NotAllowedError, may, visible_pools
from controlplane.services.whatifs import TooManyWaitError, WhatIfStanding, standings_of, start_whatif, visible_whatifs
from web.form_field import filled, general_problem
from web.moments import Moment, moment
from web.pages.access import asked, console_actor, sent
from web.pages.whatif_form import asked_from, is_window, whatif_fields
from web.pages.whatif_words import finding
from web.shell import shell_context

ADDRESS = "/experiments"
PAGE_ROWS = 40
TABS = (
    ("whatifs", "What-ifs", ADDRESS),
    ("shadows", "Shadows", f"{ADDRESS}/shadows"),
    ("canaries", "Canaries", f"{ADDRESS}/canaries"),
    ("recordings", "Recordings", f"{ADDRESS}/recordings"),
)


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
        return _page(request, problems=(FieldProblem("", "There is no such pool."),), status=422)
    try:
        made = _started(request, pool, actor)
    except InvalidFieldsError as error:
        return _page(request, problems=error.problems, status=422)
    except (NoRoomError, TooManyWaitError) as error:
        return _page(request, problems=(FieldProblem("", str(error)),), status=409)
    except NotAllowedError as error:
        return _page(request, problems=(FieldProblem("", str(error)),), status=403)
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


def _page(request: HttpRequest, *, problems: Sequence[FieldProblem] = (), status: int = 200) -> HttpResponse:
    now, actor = timezone.now(), console_actor(request)
    page = Paginator(visible_whatifs(actor), PAGE_ROWS).get_page(request.GET.get("page"))
    standings = standings_of(list(page.object_list))
    creating = request.method == "POST" or "new" in request.GET
    context = shell_context(
        request,
        page="Experiments",
        tab="whatifs",
        tabs=TABS,
        rows=[_row(each, now) for each in standings],
        paging=page,
        keep="",
        waiting=sum(each.unfinished for each in standings),
        **(_form(request, actor, problems) if creating else {}),
    )
    return render(request, "web/experiments.html", context, status=status)


def _form(request: HttpRequest, actor: Actor, problems: Sequence[FieldProblem]) -> dict[str, Any]:
    slug = sent(request, "pool") if request.method == "POST" else asked(request, "pool")
    pool = chosen_pool(actor, slug)
    fields = whatif_fields(actor, pool, asked(request, "draft"), asked(request, "recording")) if pool else []
    typed = {name: request.POST.getlist(name) for name in request.POST}
    return {
        "creating": True,
        "pool": pool,
        "pools": list(visible_pools(actor).order_by("slug").values_list("slug", flat=True)[:20]),
        "fields": filled(fields, typed, problems),
        "problem": general_problem(fields, problems),
        "may_start": pool is not None and may(actor, Role.OPERATOR, pool),
    }


def chosen_pool(actor: Actor, slug: str) -> Pool | None:
    """Return the pool of that name, without one the first that the actor may see."""
    pools = visible_pools(actor).select_related("policy__live_version").order_by("slug")
    return pools.filter(slug=slug).first() if slug else pools.first()


def _row(standing: WhatIfStanding, now: Any) -> WhatIfRow:
    whatif, result = standing.whatif, standing.result
    at = moment(whatif.created_at, now)
    if result is None:
        return WhatIfRow(standing, at, "", standing.reason if not standing.unfinished else "")
    found = finding(result, whatif.draft.number, whatif.base.number)
    return WhatIfRow(standing, at, found.kind, found.title)
