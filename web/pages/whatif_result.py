"""The page of one what-if: its progress, then its answer in words, figures and pictures."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from controlplane.models import Role
from controlplane.services import job_control
from controlplane.services.roles import NotAllowedError, may
from controlplane.services.whatifs import WhatIfStanding, standing_of, visible_whatifs
from controlplane.whatif.conditions import AUTO
from controlplane.whatif.stand_in import LEARNED, LEARNED_PREFILL, WRITTEN
from web.live.wording import count
from web.moments import moment
from web.pages.access import console_actor
from web.pages.whatif_pictures import band_picture, distribution
from web.pages.whatif_words import coarse_words, figure_rows, finding, model_words
from web.shell import shell_context

COSTS = {
    LEARNED: "costs learned from requests",
    LEARNED_PREFILL: "prefill costs learned from requests, decode costs as v{} writes them",
    WRITTEN: "costs as v{} writes them",
}


@never_cache
@require_safe
def whatif(request: HttpRequest, whatif_id: int) -> HttpResponse:
    """Show the what-if; with `fragment` only the part that changes while it runs."""
    return _page(request, whatif_id)


@never_cache
@require_POST
def cancel(request: HttpRequest, whatif_id: int) -> HttpResponse:
    """Ask its run to end."""
    return _control(request, whatif_id, again=False)


@never_cache
@require_POST
def again(request: HttpRequest, whatif_id: int) -> HttpResponse:
    """Run one that has no answer once more."""
    return _control(request, whatif_id, again=True)


def _control(request: HttpRequest, whatif_id: int, *, again: bool) -> HttpResponse:
    actor = console_actor(request)
    run = standing_of(get_object_or_404(visible_whatifs(actor), pk=whatif_id)).run
    if run is None:
        return _page(request, whatif_id, problem="Its run is forgotten; ask a new what-if.", status=409)
    try:
        (job_control.retry if again else job_control.cancel)(run, actor=actor)
    except NotAllowedError as error:
        return _page(request, whatif_id, problem=str(error), status=403)
    except job_control.JobControlError as error:
        return _page(request, whatif_id, problem=str(error), status=409)
    return redirect("whatif", whatif_id=whatif_id)


def _page(request: HttpRequest, whatif_id: int, *, problem: str = "", status: int = 200) -> HttpResponse:
    now, actor = timezone.now(), console_actor(request)
    found = get_object_or_404(visible_whatifs(actor), pk=whatif_id)
    standing = standing_of(found)
    context = shell_context(
        request,
        page="Experiments",
        whatif=found,
        standing=standing,
        percent_done=round(standing.share * 100),
        at=moment(found.created_at, now),
        author=found.author.get_username() if found.author else "the API",
        policy=found.pool.policy.slug,
        may_control=may(actor, Role.OPERATOR, found.pool),
        problem=problem,
        **_answer(standing),
    )
    part = "web/whatif_live.html" if "fragment" in request.GET else "web/whatif.html"
    return render(request, part, context, status=status)


def _answer(standing: WhatIfStanding) -> dict[str, Any]:
    result, whatif = standing.result, standing.whatif
    if result is None:
        return {}
    model, is_far = model_words(result)
    costs = COSTS[result.costs].format(whatif.base.number)
    told = whatif.conditions.get("engine_model", AUTO) == AUTO and result.model_error is not None
    model_name = f"{result.engine_model}, closest to what happened" if told else result.engine_model
    cache = f"{count(result.kv_tokens, 'token')} of cache each" if result.kv_tokens else "cache of the default size"
    return {
        "result": result,
        "finding": finding(result, whatif.draft.number, whatif.against),
        "model": model,
        "model_is_far": is_far,
        "coarse": coarse_words(result),
        "rows": figure_rows(result),
        "picture": distribution(result),
        "bands": band_picture(result),
        "setting": f"{count(result.engines, 'simulated engine')} ({model_name}), {cache}, {costs}",
        "counted": f"{result.counted:,} of {count(result.requests, 'request')} counted, {count(result.seeds, 'seed')}",
    }
