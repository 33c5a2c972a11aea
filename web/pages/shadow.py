"""The page of one shadow: what it found so far, in words, figures, pictures and examples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from controlplane.models import DecisionIndex, Engine, Role, Shadow
from controlplane.models.pool import PoolMode
from controlplane.models.shadow import ShadowState
from controlplane.services.roles import NotAllowedError, may
from controlplane.services.shadow_reading import ShadowFigures, figures_of
from controlplane.services.shadows import ShadowEndedError, stop_shadow, visible_shadows
from controlplane.services.topology import change_pool
from gateway.contracts.shadow_tally import Disagreement
from routing.values.decision import Candidate
from web.live.engine_card import reason_title
from web.live.wording import duration, span
from web.moments import Moment, moment, moment_of
from web.no_role import lacks_role
from web.pages.access import console_actor, sent
from web.pages.shadow_pictures import engine_shifts, gain_picture, gain_words
from web.pages.shadow_words import fidelity_words, finding, tiles, uncompared_words
from web.pages.whatif_words import tokens_words
from web.shell import shell_context


@dataclass(frozen=True, slots=True)
class Side:
    """One policy's choice for one request."""

    engine: str
    reason: str
    terms: str


@dataclass(frozen=True, slots=True)
class Example:
    """One request on which the policies differ."""

    decision_id: str
    kept: bool
    """Its record is in the decision store."""
    at: Moment
    prompt: str
    live: Side
    draft: Side
    gain: str
    kind: str


@never_cache
@require_safe
def shadow(request: HttpRequest, shadow_id: int) -> HttpResponse:
    """Show the shadow; with `fragment` only the part that changes while it runs."""
    return _page(request, shadow_id)


@never_cache
@require_POST
def stop(request: HttpRequest, shadow_id: int) -> HttpResponse:
    """End it."""
    actor = console_actor(request)
    found = get_object_or_404(visible_shadows(actor), pk=shadow_id)
    try:
        stop_shadow(found, actor=actor, why=sent(request, "why"))
    except NotAllowedError as error:
        return _page(request, shadow_id, problem=str(error), status=403)
    except ShadowEndedError as error:
        return _page(request, shadow_id, problem=str(error), status=409)
    return redirect("shadow", shadow_id=shadow_id)


@never_cache
@require_POST
def route(request: HttpRequest, shadow_id: int) -> HttpResponse:
    """Let the pool, which only observed, route its requests from now on."""
    actor = console_actor(request)
    found = get_object_or_404(visible_shadows(actor), pk=shadow_id)
    try:
        change_pool(found.pool, {"mode": PoolMode.ROUTE}, actor=actor, why=sent(request, "why"))
    except NotAllowedError as error:
        return _page(request, shadow_id, problem=str(error), status=403)
    return redirect("shadow", shadow_id=shadow_id)


def _page(request: HttpRequest, shadow_id: int, *, problem: str = "", status: int = 200) -> HttpResponse:
    now, actor = timezone.now(), console_actor(request)
    found = get_object_or_404(visible_shadows(actor), pk=shadow_id)
    observes, admin = found.observed and found.pool.mode == PoolMode.OBSERVE, may(actor, Role.ADMIN)
    if "ask" in request.GET and observes and not admin:
        needed = "Letting a pool route its requests needs the role admin in all pools."
        return lacks_role(request, "Experiments", needed, reverse("shadow", args=[found.pk]))
    figures = figures_of(found)
    names = dict(Engine.objects.filter(pool=found.pool).values_list("engine_id", "name"))
    context = shell_context(
        request,
        page="Experiments",
        shadow=found,
        runs=found.state == ShadowState.RUNNING,
        left=span((found.until - now).total_seconds()),
        at=moment(found.created_at, now),
        ended=moment(found.ended_at, now),
        author=found.author.get_username() if found.author else _program(found),
        has_end=not (found.observed and found.draft_id == found.base_id),
        side=_side_name(found),
        policy=found.pool.policy.slug,
        may_control=may(actor, Role.OPERATOR, found.pool),
        problem=problem,
        finding=finding(found, figures),
        uncompared=uncompared_words(figures),
        fidelity=fidelity_words(figures),
        beside="Actual" if found.observed else f"v{found.base.number}",
        may_route=observes and admin,
        lacks_admin=observes and not admin,
        asking="ask" in request.GET,
        **_answer(figures, names, now),
    )
    part = "web/shadow_live.html" if "fragment" in request.GET else "web/shadow.html"
    return render(request, part, context, status=status)


def _program(found: Shadow) -> str:
    return "the pool's mode" if found.observed and found.draft_id == found.base_id else "the API"


def _side_name(found: Shadow) -> str:
    """Return whose colour the shadow's bars have: the live policy's own where it is compared with others."""
    return "base" if found.observed and found.draft_id == found.base_id else "draft"


def _answer(figures: ShadowFigures, names: Mapping[str, str], now: datetime) -> dict[str, Any]:
    if not figures.tally.compared:
        return {}
    sample = figures.disagreements
    kept = set(
        DecisionIndex.objects.filter(decision_id__in=[each.decision_id for each in sample]).values_list(
            "decision_id", flat=True
        )
    )
    return {
        "figures": figures,
        "disagreed": f"{figures.disagreed:,}",
        "tiles": tiles(figures),
        "picture": gain_picture(figures),
        "shifts": engine_shifts(figures, names),
        "hidden_engines": max(0, len(figures.engines) - 24),
        "examples": [_example(each, each.decision_id in kept, names, now) for each in sample],
    }


def _example(one: Disagreement, kept: bool, names: Mapping[str, str], now: datetime) -> Example:
    gain_s = one.live.cost - one.shadow.cost
    return Example(
        one.decision_id,
        kept,
        moment_of(datetime.fromtimestamp(one.at, UTC), now),
        tokens_words(one.prompt_tokens),
        _side(one.live, one.live_reason, names),
        _side(one.shadow, one.shadow_reason, names),
        gain_words(gain_s),
        "better" if gain_s >= 0.001 else "worse" if gain_s <= -0.001 else "even",
    )


def _side(scored: Candidate, reason: str, names: Mapping[str, str]) -> Side:
    terms = (
        f"{duration(scored.wait_s)} wait + {duration(scored.compute_s)} prefill, "
        f"{tokens_words(scored.hit_tokens)} cached"
    )
    return Side(names.get(scored.engine_id, scored.engine_id), reason_title(reason), terms)
