"""The list of shadows, and the form that starts one."""

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

from controlplane.models import Pool, Role, Shadow
from controlplane.models.pool import PoolMode
from controlplane.models.shadow import ShadowState
from controlplane.services.actor import Actor
from controlplane.services.field_problems import FieldProblem, InvalidFieldsError, problem
from controlplane.services.roles import NotAllowedError, may, visible_pools
from controlplane.services.shadow_reading import figures_of
from controlplane.services.shadows import ShadowRunsError, start_shadow, visible_shadows
from controlplane.services.topology import change_pool
from web.form_field import NUMBER, SELECT, FormField, Option, filled, general_problem, whole_number
from web.live.wording import percent
from web.moments import Moment, moment
from web.pages.access import asked, console_actor, sent
from web.pages.experiments import PAGE_ROWS, TABS, chosen_pool
from web.pages.shadow_words import Finding, finding
from web.pages.whatif_form import version_options
from web.shell import shell_context

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
        return _page(request, problems=(FieldProblem("", "There is no such pool."),), status=422)
    try:
        made = _started(request, pool, actor)
    except InvalidFieldsError as error:
        return _page(request, problems=error.problems, status=422)
    except ShadowRunsError as error:
        return _page(request, problems=(FieldProblem("", str(error)),), status=409)
    except NotAllowedError as error:
        return _page(request, problems=(FieldProblem("", str(error)),), status=403)
    return redirect("shadow", shadow_id=made.pk)


@never_cache
@require_POST
def observe(request: HttpRequest) -> HttpResponse:
    """Let a pool route nothing any more and only observe; its name is typed to confirm."""
    actor = console_actor(request)
    pool = chosen_pool(actor, sent(request, "pool"))
    if pool is None:
        return _page(request, problems=(FieldProblem("", "There is no such pool."),), status=422)
    if sent(request, "typed") != pool.slug:
        wrong = FieldProblem("typed", f"Type {pool.slug} to confirm that it stops routing.")
        return _page(request, problems=(wrong,), status=422)
    try:
        change_pool(pool, {"mode": PoolMode.OBSERVE}, actor=actor, why=sent(request, "why"))
    except NotAllowedError as error:
        return _page(request, problems=(FieldProblem("", str(error)),), status=403)
    return redirect("shadows")


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


def _page(request: HttpRequest, *, problems: Sequence[FieldProblem] = (), status: int = 200) -> HttpResponse:
    now, actor = timezone.now(), console_actor(request)
    page = Paginator(visible_shadows(actor), PAGE_ROWS).get_page(request.GET.get("page"))
    creating = request.method == "POST" or "new" in request.GET
    context = shell_context(
        request,
        page="Experiments",
        tab="shadows",
        tabs=TABS,
        rows=[_row(each, now) for each in page.object_list],
        paging=page,
        keep="",
        running=visible_shadows(actor).filter(state=ShadowState.RUNNING).count(),
        **(_form(request, actor, problems) if creating else {}),
    )
    return render(request, "web/shadows.html", context, status=status)


def _form(request: HttpRequest, actor: Actor, problems: Sequence[FieldProblem]) -> dict[str, Any]:
    slug = sent(request, "pool") if request.method == "POST" else asked(request, "pool")
    pool = chosen_pool(actor, slug)
    fields = _fields(pool, asked(request, "draft")) if pool else []
    typed = {name: request.POST.getlist(name) for name in request.POST}
    return {
        "creating": True,
        "pool": pool,
        "pools": list(visible_pools(actor).order_by("slug").values_list("slug", flat=True)[:20]),
        "fields": filled(fields, typed, problems),
        "problem": general_problem(fields, [each for each in problems if each.path != "typed"]),
        "may_observe": pool is not None and pool.mode == PoolMode.ROUTE and may(actor, Role.ADMIN),
        "observe_problem": next((each.message for each in problems if each.path == "typed"), ""),
        "may_start": pool is not None and may(actor, Role.OPERATOR, pool),
    }


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
