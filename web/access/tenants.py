"""The Tenants page; tenants own API keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.http import require_http_methods, require_POST

from controlplane.fleet.topology import change_tenant, create_tenant, delete_tenant
from controlplane.platform.field_problems import FieldProblem, InvalidFieldsError
from controlplane.platform.models.tenant import Tenant
from controlplane.platform.recorded_change import InUseError
from controlplane.platform.resource.declared_field import settable_fields
from controlplane.platform.revisions import StaleRevisionError
from controlplane.usage.summary import usage_of
from web.access.page import PAGE_ROWS, access_page, admins_only
from web.shell.console_request import asked, console_actor, go, kept, listed, row_number, typed_fields, why
from web.shell.form_field import FormField, filled, general_problem
from web.shell.resource_form import form_fields, typed_values

ADDRESS = "/access/tenants"
_CREATED, _CHANGED = settable_fields(Tenant, creating=True), settable_fields(Tenant)
_WHY = FormField("why", "Why", help="Optional; for the audit.", limit=200)


@require_http_methods(["GET", "HEAD", "POST"])
@admins_only
def tenants(request: HttpRequest) -> HttpResponse:
    """List the tenants; on POST add a tenant."""
    if request.method != "POST":
        return _page(request)
    values, problems = typed_values(_CREATED, request.POST)
    try:
        if problems:
            raise InvalidFieldsError(problems)
        slug = create_tenant(**values, actor=console_actor(request), why=why(request)).slug
    except InvalidFieldsError as error:
        return _page(request, creating=True, problems=error.problems, status=422)
    return go(ADDRESS, tenant=slug, said="tenant-created")


@require_POST
@admins_only
def rename_tenant(request: HttpRequest, slug: str) -> HttpResponse:
    """Change the tenant's name and its allowed models."""
    tenant = get_object_or_404(Tenant, slug=slug)
    changes, problems = typed_values(_CHANGED, request.POST)
    revision = row_number(request.POST.get("revision"))
    try:
        if problems:
            raise InvalidFieldsError(problems)
        change_tenant(tenant, changes, actor=console_actor(request), expected=revision, why=why(request))
    except InvalidFieldsError as error:
        return _page(request, opened=tenant, problems=error.problems, status=422)
    except StaleRevisionError:
        news = FieldProblem("", "Another person changed this tenant while you edited. Review its current state.")
        return _page(request, opened=tenant, problems=(news,), keep_typed=False, status=412)
    return go(ADDRESS, tenant=slug, said="tenant-changed")


@require_POST
@admins_only
def remove_tenant(request: HttpRequest, slug: str) -> HttpResponse:
    """Delete a tenant that owns no keys."""
    tenant = get_object_or_404(Tenant, slug=slug)
    try:
        delete_tenant(tenant, actor=console_actor(request), why=why(request))
    except InUseError as error:
        return _page(request, opened=tenant, problems=(FieldProblem("", str(error)),), status=409)
    return go(ADDRESS, said="tenant-deleted")


def _page(
    request: HttpRequest,
    *,
    opened: Tenant | None = None,
    creating: bool = False,
    problems: Sequence[FieldProblem] = (),
    keep_typed: bool = True,
    status: int = 200,
) -> HttpResponse:
    tenants = _counted().order_by("slug")
    wanted = asked(request, "q", 120)
    if wanted:
        tenants = tenants.filter(Q(slug__icontains=wanted) | Q(name__icontains=wanted))
    page = listed(request, tenants, PAGE_ROWS)
    slug = opened.slug if opened else asked(request, "tenant")
    shown = _counted().filter(slug=slug).first() if slug else None
    creating = creating or (request.method != "POST" and "new" in request.GET)
    typed = typed_fields(request) if keep_typed else {}
    fields = [*form_fields(_CREATED), _WHY] if creating else [*form_fields(_CHANGED, shown), _WHY] if shown else []
    return access_page(
        request,
        "tenants",
        status=status,
        rows=list(page.object_list),
        paging=page,
        wanted=wanted,
        keep=kept(q=wanted),
        creating=creating,
        opened=shown,
        usage=usage_of(console_actor(request), shown.slug) if shown else None,
        owner_budget=kept(tenant=shown.slug) if shown else "",
        fields=filled(fields, typed, problems),
        problem=general_problem(fields, problems),
        deleting=shown is not None and "delete" in request.GET,
    )


def _counted() -> Any:
    return Tenant.objects.annotate(
        keys=Count("api_keys", filter=Q(api_keys__revoked_at=None)), all_keys=Count("api_keys")
    )
