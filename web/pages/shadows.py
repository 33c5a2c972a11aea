"""The list of shadows, and the form that starts one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from controlplane.models import Pool, Shadow
from controlplane.models.shadow import ShadowState
from controlplane.services.actor import Actor
from controlplane.services.field_problems import FieldProblem, InvalidFieldsError, problem
from controlplane.services.shadow_reading import figures_of
from controlplane.services.shadows import ShadowRunsError, start_shadow, visible_shadows
from web.form_field import NUMBER, SELECT, FormField, Option, whole_number
from web.live.wording import percent
from web.moments import Moment, moment
from web.no_role import lacks_role
from web.pages.access import asked, console_actor, sent
from web.pages.shadow_words import Finding, finding
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
from web.pages.whatif_form import version_options

_LISTED_VERSIONS = 40
LENGTHS = (("15", "15 min"), ("60", "1 h"), ("480", "8 h"), ("1440", "1 d"))


@dataclass(frozen=True, slots=True)
class ShadowRow:
    """One shadow in the list."""

    shadow: Shadow
    at: Moment | None
    finding: Finding
    compared: str
    agreement: str


@never_cache
@require_safe
def shadows(request: HttpRequest) -> HttpResponse:
    """List the shadows; with `new` beside the form that starts one."""
    return _page(request)


@never_cache
@require_POST
def start(request: HttpRequest) -> HttpResponse:
    """Start a shadow, and lead to where its figures will be."""
    actor = console_actor(request)
    pool = chosen_pool(actor, sent(request, "pool"))
    if pool is None:
        return _page(request, NO_POOL)
    made = attempted(lambda: _started(request, pool, actor), ShadowRunsError)
    if isinstance(made, Refusal):
        return _page(request, made)
    return redirect("shadow", shadow_id=made.pk)


def _started(request: HttpRequest, pool: Pool, actor: Actor) -> Shadow:
    problems: list[FieldProblem] = []
    draft = whole_number("draft", sent(request, "draft"), problems)
    minutes = whole_number("minutes", sent(request, "minutes"), problems)
    rate = whole_number("max_per_s", sent(request, "max_per_s"), problems)
    if problems:
        raise InvalidFieldsError(problems)
    version = pool.policy.versions.filter(number=draft).first() if draft is not None and draft < 2**31 else None
    if version is None:
        raise problem("draft", "There is no such version; save a draft of the policy first.")
    limits = {name: value for name, value in (("minutes", minutes), ("max_per_s", rate)) if value is not None}
    return start_shadow(pool, version, **limits, actor=actor, why=sent(request, "why"))


def _page(request: HttpRequest, refusal: Refusal | None = None) -> HttpResponse:
    now, actor = timezone.now(), console_actor(request)
    if is_creating(request) and (needed := needed_role(request, actor)):
        return lacks_role(request, "Experiments", needed, reverse("shadows"))
    page = listed(request, visible_shadows(actor))
    rows = [_row(each, now) for each in page.object_list]
    running = visible_shadows(actor).filter(state=ShadowState.RUNNING).count()
    form = _form(request, actor, refusal) if is_creating(request) else {}
    return trial_page(request, "shadows", page, rows, refusal, running=running, **form)


def _form(request: HttpRequest, actor: Actor, refusal: Refusal | None) -> dict[str, Any]:
    draft = asked(request, "draft")
    return pool_form(request, actor, lambda pool: _fields(pool, draft), refusal.problems if refusal else ())


def _fields(pool: Pool, draft: str) -> list[FormField]:
    live = pool.policy.live_version
    versions = pool.policy.versions.order_by("-number")[:_LISTED_VERSIONS]
    drafts = [each for each in versions if live is None or each.number != live.number]
    first = draft if draft in [str(each.number) for each in drafts] else str(drafts[0].number) if drafts else ""
    beside = (
        f"What chooses beside v{live.number}, the live version." if live else "Nothing is live yet to compare with."
    )
    if not drafts:
        beside = "There is no draft yet; save one under Policies first."
    return [
        FormField("draft", "Draft", SELECT, help=beside, options=version_options(drafts, pool), chosen=(first,)),
        FormField(
            "minutes", "Ends after", SELECT, help="It also ends when another version goes live.",
            options=tuple(Option(*each) for each in LENGTHS), chosen=("60",),
        ),
        FormField(
            "max_per_s", "At most", NUMBER, unit="requests/s", limit=4, chosen=("50",),
            help="Requests compared at each gateway; each takes some CPU time of routing, which is measured.",
        ),
    ]  # fmt: skip


def _row(shadow: Shadow, now: Any) -> ShadowRow:
    figures = figures_of(shadow)
    agreement = "—" if figures.agreement is None else percent(figures.agreement)
    return ShadowRow(
        shadow, moment(shadow.created_at, now), finding(shadow, figures), f"{figures.tally.compared:,}", agreement
    )
