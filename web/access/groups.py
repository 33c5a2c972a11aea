"""The Groups page: roles that the sign-in provider's groups give."""

from __future__ import annotations

from collections.abc import Sequence

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.http import require_http_methods

from controlplane.access.group_grants import change_grant, create_grant, delete_grant
from controlplane.access.models.group_grant import GroupGrant
from controlplane.platform.field_problems import FieldProblem, InvalidFieldsError
from controlplane.platform.resource.declared_field import settable_fields
from controlplane.platform.revisions import StaleRevisionError
from web.access.page import PAGE_ROWS, access_page, admins_only
from web.shell.console_request import asked, console_actor, go, listed, row_number, sent, typed_fields, why
from web.shell.form_field import FormField, filled, general_problem
from web.shell.resource_form import form_fields, typed_values

ADDRESS = "/access/groups"
_CREATED, _CHANGED = settable_fields(GroupGrant, creating=True), settable_fields(GroupGrant)
_WHY = FormField("why", "Why", help="Optional; for the audit.", limit=200)


@require_http_methods(["GET", "HEAD", "POST"])
@admins_only
def groups(request: HttpRequest) -> HttpResponse:
    """List the roles of groups; on POST create, change, or delete one."""
    if request.method != "POST":
        return _page(request)
    given = sent(request, "grant")
    opened = get_object_or_404(GroupGrant, grant_id=given) if given else None
    try:
        if opened is not None and sent(request, "do") == "delete":
            delete_grant(opened, actor=console_actor(request), why=why(request))
            return go(ADDRESS, said="group-role-deleted")
        return _stored(request, opened)
    except InvalidFieldsError as error:
        return _page(request, opened=opened, creating=opened is None, problems=error.problems, status=422)
    except StaleRevisionError:
        news = FieldProblem("", "Another person changed this role while you edited. Review its current state.")
        return _page(request, opened=opened, problems=(news,), keep_typed=False, status=412)


def _stored(request: HttpRequest, opened: GroupGrant | None) -> HttpResponse:
    values, problems = typed_values(_CREATED if opened is None else _CHANGED, request.POST)
    if problems:
        raise InvalidFieldsError(problems)
    actor, reason = console_actor(request), why(request)
    if opened is None:
        grant = create_grant(**values, actor=actor, why=reason)
    else:
        revision = row_number(request.POST.get("revision"))
        grant = change_grant(opened, values, actor=actor, expected=revision, why=reason)
    return go(ADDRESS, grant=grant.grant_id, said="group-role-stored")


def _page(
    request: HttpRequest,
    *,
    opened: GroupGrant | None = None,
    creating: bool = False,
    problems: Sequence[FieldProblem] = (),
    keep_typed: bool = True,
    status: int = 200,
) -> HttpResponse:
    page = listed(request, GroupGrant.objects.all(), PAGE_ROWS)
    if opened is None and request.method != "POST":
        opened = GroupGrant.objects.filter(grant_id=asked(request, "grant")).first()
    creating = creating or (request.method != "POST" and "new" in request.GET)
    fields = [*form_fields(_CREATED), _WHY] if creating else [*form_fields(_CHANGED, opened), _WHY] if opened else []
    return access_page(
        request,
        "groups",
        status=status,
        rows=list(page.object_list),
        paging=page,
        provider=settings.OIDC_ISSUER,
        claim=settings.OIDC_GROUPS_CLAIM,
        creating=creating,
        opened=opened,
        fields=filled(fields, typed_fields(request) if keep_typed else {}, problems),
        problem=general_problem(fields, problems),
        deleting=opened is not None and "delete" in request.GET,
    )
