"""The Budgets and Prices pages: one list with a drawer, a form, and a question before a deletion."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from controlplane.fleet.models.pool import Pool
from controlplane.platform.audit_values import kind_of
from controlplane.platform.field_problems import FieldProblem, InvalidFieldsError
from controlplane.platform.models.api_key import ApiKey
from controlplane.platform.models.tenant import Tenant
from controlplane.platform.resource.declared_field import settable_fields
from controlplane.platform.resource.resource import Resource
from controlplane.platform.revisions import StaleRevisionError
from controlplane.platform.role import Role
from controlplane.platform.roles import may
from controlplane.usage.budgets import BUDGETS, PRICES
from controlplane.usage.summary import budget_uses
from web.shell.console_request import asked, console_actor, go, row_number, sent, typed_fields, why
from web.shell.form_field import FieldOption, FormField, filled, general_problem
from web.shell.frame import shell_context
from web.shell.no_role import lacks_role, needs_all_pools
from web.shell.resource_form import facts, form_fields, typed_values
from web.usage.page import PAGE, tabs

_WHY = FormField("why", "Why", help="Optional; for the audit.", limit=200)
SAID = {
    "created": "Added; gateways apply it within seconds.",
    "changed": "Changed; gateways apply it within seconds.",
    "deleted": "Deleted.",
}
all_pools_only = needs_all_pools(PAGE, "Budgets and prices apply to the whole fleet. Viewing them")


@dataclass(frozen=True, slots=True)
class ObjectPages:
    """The page of one resource of this feature. `shown` returns the rows of its list."""

    resource: Resource
    noun: str
    shown: Callable[[Any], list[Any]]

    @property
    def address(self) -> str:
        """Return the page's address."""
        return f"/usage/{self.resource.noun}"

    def view(self, request: HttpRequest) -> HttpResponse:
        """List the objects; on POST create, change, or delete one."""
        if request.method != "POST":
            return self._page(request)
        actor = console_actor(request)
        if not may(actor, Role.ADMIN):
            return lacks_role(request, PAGE, f"Changing {self.resource.noun} requires the role admin.", self.address)
        slug = sent(request, "object")
        opened = get_object_or_404(self.resource.model, slug=slug) if slug else None
        try:
            if opened is not None and sent(request, "do") == "delete" and self.resource.deleted is not None:
                self.resource.deleted(opened, actor=actor, why=why(request))
                return go(self.address, said="deleted")
            return self._stored(request, opened)
        except InvalidFieldsError as error:
            return self._page(request, opened=opened, creating=opened is None, problems=error.problems, status=422)
        except StaleRevisionError:
            text = f"Another person changed this {self.noun} while you edited. Review its current state."
            return self._page(request, opened=opened, problems=(FieldProblem("", text),), keep_typed=False, status=412)

    def _stored(self, request: HttpRequest, opened: Any) -> HttpResponse:
        fields = self.resource.created_fields if opened is None else settable_fields(self.resource.model)
        values, problems = typed_values(fields, request.POST)
        if "tenant" in values:
            values["tenant"] = Tenant.objects.filter(slug=values["tenant"]).first()
            if values["tenant"] is None:
                problems.append(FieldProblem("tenant", "Choose a tenant."))
        if problems:
            raise InvalidFieldsError(problems)
        named = {"actor": console_actor(request), "why": why(request)}
        if opened is None:
            return go(self.address, object=self.resource.created(**values, **named).slug, said="created")
        self.resource.changed(opened, values, expected=row_number(request.POST.get("revision")), **named)
        return go(self.address, object=opened.slug, said="changed")

    def _page(
        self,
        request: HttpRequest,
        *,
        opened: Any = None,
        creating: bool = False,
        problems: Sequence[FieldProblem] = (),
        keep_typed: bool = True,
        status: int = 200,
    ) -> HttpResponse:
        actor, resource = console_actor(request), self.resource
        is_admin = may(actor, Role.ADMIN)
        slug = opened.slug if opened else asked(request, "object")
        shown = resource.rows(actor).filter(slug=slug).first() if slug else None
        creating = is_admin and (creating or (request.method != "POST" and "new" in request.GET))
        changed = settable_fields(resource.model)
        fields = self._new_fields(request) if creating else form_fields(changed, shown) if shown and is_admin else []
        fields = filled([*fields, _WHY] if fields else [], typed_fields(request) if keep_typed else {}, problems)
        context = shell_context(
            request,
            page=PAGE,
            tabs=tabs(actor),
            tab=resource.noun,
            noun=self.noun,
            address=self.address,
            kind=kind_of(resource.model()),
            back=f"{self.address}?object=",
            verb=f"Delete {self.noun}",
            rows=self.shown(resource.rows(actor)),
            creating=creating,
            opened=shown,
            facts=facts(resource.created_fields, shown) if shown else (),
            fields=fields,
            problem=general_problem(fields, problems),
            is_admin=is_admin,
            said=SAID.get(request.GET.get("said", ""), ""),
            deleting=is_admin and shown is not None and "delete" in request.GET,
        )
        return render(request, f"usage/{resource.noun}.html", context, status=status)

    def _new_fields(self, request: HttpRequest) -> list[FormField]:
        """Return the fields of a new object, with the values that the address proposes."""
        keys = ApiKey.objects.filter(revoked_at=None).select_related("tenant")[:500]
        served = Pool.objects.order_by("served_model").values_list("served_model", flat=True).distinct()[:500]
        options = {
            "tenant": [FieldOption(item.slug, f"{item.slug}, {item.name}") for item in Tenant.objects.all()[:500]],
            "key_id": [
                FieldOption("", "all its keys"),
                *(FieldOption(k.key_id, f"{k.tenant.slug}: {k.name}") for k in keys),
            ],
            "model": [FieldOption(name, name) for name in served],
        }
        fields = form_fields(self.resource.created_fields, options=options)
        given = {name: [text] for name in ("tenant", "key_id", "model") if (text := asked(request, name))}
        return filled(fields, given, ())


BUDGET_PAGES = ObjectPages(BUDGETS, "budget", lambda rows: budget_uses(rows, timezone.now()))
PRICE_PAGES = ObjectPages(PRICES, "price", list)
budgets = require_http_methods(["GET", "HEAD", "POST"])(all_pools_only(BUDGET_PAGES.view))
prices = require_http_methods(["GET", "HEAD", "POST"])(all_pools_only(PRICE_PAGES.view))
