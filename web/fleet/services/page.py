"""The Services page: names for clients, their pools in order, and what their providers answered and cost."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import Sum
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_http_methods

from controlplane.fleet.model_services import change_service, create_service, delete_service
from controlplane.fleet.models.model_service import ModelService, ProviderUsage
from controlplane.platform.field_problems import FieldProblem, InvalidFieldsError
from controlplane.platform.resource.declared_field import settable_fields
from controlplane.platform.revisions import StaleRevisionError
from controlplane.platform.role import Role
from controlplane.platform.roles import may
from web.shell.console_request import asked, console_actor, go, row_number, sent, typed_fields, why
from web.shell.form_field import FormField, filled, general_problem
from web.shell.frame import shell_context
from web.shell.no_role import lacks_role, needs_all_pools
from web.shell.resource_form import facts, form_fields, typed_values

ADDRESS, PAGE = "/engines/services", "Engines"
COST_DAYS = 30
_CREATED, _CHANGED = settable_fields(ModelService, creating=True), settable_fields(ModelService)
_WHY = FormField("why", "Why", help="Optional; for the audit.", limit=200)
SAID = {
    "created": "Service added; gateways serve it within a second.",
    "changed": "Service changed; gateways apply it within a second.",
    "deleted": "Service deleted.",
}


all_pools_only = needs_all_pools(PAGE, "Services can name any pool. Viewing them")


@require_http_methods(["GET", "HEAD", "POST"])
@all_pools_only
def services(request: HttpRequest) -> HttpResponse:
    """List the services; on POST create, change, or delete one."""
    if request.method != "POST":
        return _page(request)
    if not may(console_actor(request), Role.ADMIN):
        return lacks_role(request, PAGE, "Changing services requires the role admin.", ADDRESS)
    slug = sent(request, "service")
    opened = get_object_or_404(ModelService, slug=slug) if slug else None
    try:
        if opened is not None and sent(request, "do") == "delete":
            delete_service(opened, actor=console_actor(request), why=why(request))
            return go(ADDRESS, said="deleted")
        return _stored(request, opened)
    except InvalidFieldsError as error:
        return _page(request, opened=opened, creating=opened is None, problems=error.problems, status=422)
    except StaleRevisionError:
        news = FieldProblem("", "Another person changed this service while you edited. Review its current state.")
        return _page(request, opened=opened, problems=(news,), keep_typed=False, status=412)


def _stored(request: HttpRequest, opened: ModelService | None) -> HttpResponse:
    values, problems = typed_values(_CREATED if opened is None else _CHANGED, request.POST)
    if problems:
        raise InvalidFieldsError(problems)
    actor, reason = console_actor(request), why(request)
    if opened is None:
        slug = create_service(**values, actor=actor, why=reason).slug
        return go(ADDRESS, service=slug, said="created")
    revision = row_number(request.POST.get("revision"))
    change_service(opened, values, actor=actor, expected=revision, why=reason)
    return go(ADDRESS, service=opened.slug, said="changed")


def _page(
    request: HttpRequest,
    *,
    opened: ModelService | None = None,
    creating: bool = False,
    problems: Sequence[FieldProblem] = (),
    keep_typed: bool = True,
    status: int = 200,
) -> HttpResponse:
    is_admin = may(console_actor(request), Role.ADMIN)
    rows = list(ModelService.objects.all())
    slug = opened.slug if opened else asked(request, "service")
    shown = next((row for row in rows if row.slug == slug), None)
    creating = is_admin and (creating or (request.method != "POST" and "new" in request.GET))
    typed = typed_fields(request) if keep_typed else {}
    fields = form_fields(_CREATED) if creating else form_fields(_CHANGED, shown) if shown and is_admin else []
    fields = filled([*fields, _WHY] if fields else [], typed, problems)
    costs = usage(datetime.now(UTC) - timedelta(days=COST_DAYS))
    context = shell_context(
        request,
        page=PAGE,
        tab="services",
        rows=[(row, costs.get(row.slug)) for row in rows],
        cost_days=COST_DAYS,
        creating=creating,
        opened=shown,
        facts=facts(_CHANGED, shown) if shown else (),
        fields=fields,
        problem=general_problem(fields, problems),
        is_admin=is_admin,
        said=SAID.get(request.GET.get("said", ""), ""),
        deleting=is_admin and shown is not None and "delete" in request.GET,
    )
    return render(request, "fleet/services.html", context, status=status)


def usage(since: datetime) -> dict[str, dict[str, Any]]:
    """Return the answers and dollars of each service's provider since that day."""
    days = ProviderUsage.objects.filter(day__gte=since.date()).values("service")
    return {row["service"]: row for row in days.annotate(answers=Sum("requests"), dollars=Sum("cost")).order_by()}
