"""What the pages under Experiments share: the list, the drawer that starts one, and how a refused start is answered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from django.core.paginator import Page, Paginator
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from controlplane.models import Pool, Role
from controlplane.services.actor import Actor
from controlplane.services.field_problems import FieldProblem, InvalidFieldsError
from controlplane.services.roles import NotAllowedError, may, may_somewhere, visible_pools
from web.form_field import FormField, filled, general_problem
from web.pages.access import asked, console_actor, sent
from web.shell import shell_context

ADDRESS = "/experiments"
PAGE_ROWS = 40
TABS = (
    ("whatifs", "What-ifs", ADDRESS),
    ("shadows", "Shadows", f"{ADDRESS}/shadows"),
    ("canaries", "Canaries", f"{ADDRESS}/canaries"),
    ("recordings", "Recordings", f"{ADDRESS}/recordings"),
)
_LISTED_POOLS = 20

Made = TypeVar("Made")
Listed = TypeVar("Listed", bound=Model)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why nothing was started, and with which status the form is shown again."""

    problems: tuple[FieldProblem, ...]
    status: int

    @classmethod
    def of(cls, message: str, status: int, path: str = "") -> Refusal:
        """Return the refusal with one problem; without a path no field is to blame."""
        return cls((FieldProblem(path, message),), status)


NO_POOL = Refusal.of("There is no such pool.", 422)


def attempted(start: Callable[[], Made], *conflicts: type[Exception]) -> Made | Refusal:
    """Return what `start` made, or the refusal; `conflicts` are the errors that time or room may heal."""
    try:
        return start()
    except InvalidFieldsError as error:
        return Refusal(tuple(error.problems), 422)
    except NotAllowedError as error:
        return Refusal.of(str(error), 403)
    except conflicts as error:
        return Refusal.of(str(error), 409)


def chosen_pool(actor: Actor, slug: str) -> Pool | None:
    """Return the visible pool of that name, without one the first in which the actor may start trials."""
    pools = visible_pools(actor).select_related("policy__live_version").order_by("slug")
    return pools.filter(slug=slug).first() if slug else next(iter(operated_pools(actor)), None)


def operated_pools(actor: Actor) -> list[Pool]:
    """Return the pools in which the actor may start trials and keep recordings."""
    pools = visible_pools(actor).select_related("policy__live_version").order_by("slug")
    return [pool for pool in pools if may(actor, Role.OPERATOR, pool)]


def needed_role(request: HttpRequest, actor: Actor) -> str:
    """Return which role the form of the asked pool needs; empty where the actor has it."""
    slug = sent(request, "pool") if request.method == "POST" else asked(request, "pool")
    pool = visible_pools(actor).filter(slug=slug).first() if slug else None
    allowed = may(actor, Role.OPERATOR, pool) if pool else may_somewhere(actor, Role.OPERATOR)
    return "" if allowed else f"This needs the role operator in {f'pool {pool.slug}' if pool else 'a pool'}."


def listed(request: HttpRequest, found: QuerySet[Listed]) -> Page[Listed]:
    """Return the page of the list that the address names."""
    return Paginator(found, PAGE_ROWS).get_page(request.GET.get("page"))


def is_creating(request: HttpRequest) -> bool:
    """Tell whether the form stands beside the list: it is asked for, or was refused."""
    return request.method == "POST" or "new" in request.GET


def trial_page(
    request: HttpRequest, tab: str, page: Page[Any], rows: Sequence[Any], refusal: Refusal | None, **own: Any
) -> HttpResponse:
    """Render the list of one tab; `own` is what only its template knows, such as the form."""
    own = {"may_new": may_somewhere(console_actor(request), Role.OPERATOR), **own}
    context = shell_context(request, page="Experiments", tab=tab, tabs=TABS, rows=rows, paging=page, keep="", **own)
    template = "experiments" if tab == "whatifs" else tab
    return render(request, f"web/{template}.html", context, status=refusal.status if refusal else 200)


def trial_form(
    request: HttpRequest, fields: Sequence[FormField], problems: Sequence[FieldProblem], **own: Any
) -> dict[str, Any]:
    """Return what the drawer shows: the fields with what was typed, and what is wrong with them."""
    typed = {name: request.POST.getlist(name) for name in request.POST}
    return {
        "creating": True,
        "fields": filled(fields, typed, problems),
        "problem": general_problem(fields, problems),
        **own,
    }


def pool_form(
    request: HttpRequest,
    actor: Actor,
    fields_of: Callable[[Pool], Sequence[FormField]],
    problems: Sequence[FieldProblem],
) -> dict[str, Any]:
    """Return the drawer's form for the chosen pool, and the pools to choose from."""
    slug = sent(request, "pool") if request.method == "POST" else asked(request, "pool")
    pool = chosen_pool(actor, slug)
    return trial_form(
        request,
        fields_of(pool) if pool else (),
        problems,
        pool=pool,
        pools=[each.slug for each in operated_pools(actor)[:_LISTED_POOLS]],
    )
