"""Pages of a resource: one list with a drawer, a form, and a question before a deletion."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

from django.db import models
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render

from controlplane.platform.actor import Actor
from controlplane.platform.audit_values import kind_of
from controlplane.platform.conflict import ConflictError
from controlplane.platform.field_problems import FieldProblem, InvalidFieldsError
from controlplane.platform.resource.declared_field import declaration_of, settable_fields
from controlplane.platform.resource.resource import Resource
from controlplane.platform.revisions import StaleRevisionError
from controlplane.platform.roles import may
from web.shell.console_request import asked, console_actor, go, kept, listed, row_number, sent, typed_fields, why
from web.shell.form_field import FieldOption, FormField, filled, general_problem
from web.shell.frame import Tab, shell_context
from web.shell.no_role import lacks_role
from web.shell.resource_form import facts, form_fields, typed_values

_WHY = FormField("why", "Why", help="Optional; for the audit.", limit=200)
_NOTHING: Mapping[str, Any] = {}
PAGE_ROWS = 50
Options = Mapping[str, Sequence[FieldOption]]


@dataclass(frozen=True, slots=True)
class ObjectPages:
    """The page of one resource that belongs to no pool."""

    resource: Resource
    noun: str
    """Words for one object; an irregular plural follows after a comma."""
    page: str
    """Name of its navigation item."""
    address: str
    template: str
    tabs: Callable[[Actor], tuple[Tab, ...]]
    tab: str
    said: Mapping[str, str]
    """What the page states after an act, by its name: created, changed, deleted, and those of `acts`."""
    shown: Callable[[Any], list[Any]] = list
    """Function that returns the rows of the list; with it, the template has a table of its own."""
    more: Callable[[Any], list[tuple[str, str]]] | None = None
    """Function that returns derived facts of an object as (title, text), for the table and the drawer."""
    blanks: Mapping[str, str] = field(default_factory=dict)
    """Title of a field → what an empty value means, such as all."""
    written: Mapping[str, Callable[[Any], str]] = field(default_factory=dict)
    """Title of a field → function that returns its value of an object in words."""
    options: Callable[[], Options] = dict
    """Function that returns the choices of fields that name other objects."""
    besides: Callable[[HttpRequest], dict[str, Any]] = lambda _request: {}
    """Function that returns what else the template shows."""
    named: str = "object"
    """Name of the parameter with an object's public id."""
    search: Sequence[str] = ()
    """Lookups of the words to search for; with them, the list has pages."""
    counted: Callable[[Any], Any] = copy
    """Function that adds to a query of objects what `more` shows."""
    context: Callable[[Actor, Any], Mapping[str, Any]] | None = None
    """Function that returns what the template shows about the opened object, besides its facts."""
    acts: Mapping[str, Callable[..., str]] = field(default_factory=dict)
    """Further buttons: a service that returns the name of what the page states."""

    def view(self, request: HttpRequest, public_id: str = "", act: str = "") -> HttpResponse:
        """List the objects; on POST create, change, or delete one, which the address or the form names."""
        if request.method != "POST":
            return self.rendered(request)
        actor = console_actor(request)
        role = self.resource.changes_need
        if not may(actor, role):
            return lacks_role(request, self.page, f"Changing {self._nouns[1]} requires the role {role}.", self.address)
        name = public_id or sent(request, self.named)
        opened = get_object_or_404(self.resource.model, **{self._id_field: name}) if name else None
        try:
            return self._done(request, actor, opened, act or sent(request, "do"))
        except InvalidFieldsError as error:
            return self.rendered(request, opened=opened, creating=opened is None, problems=error.problems, status=422)
        except StaleRevisionError:
            text = f"Another person changed this {self._nouns[0]} while you edited. Review its current state."
            return self.rendered(
                request, opened=opened, problems=(FieldProblem("", text),), keep_typed=False, status=412
            )
        except ConflictError as error:
            return self.rendered(request, opened=opened, problems=(FieldProblem("", str(error)),), status=409)

    @property
    def _nouns(self) -> tuple[str, str]:
        one, _, many = self.noun.partition(",")
        return one, many or f"{one}s"

    @property
    def _id_field(self) -> str:
        return self.resource.model.public_id_field

    def _go(self, thing: Any, said: str) -> HttpResponse:
        return go(self.address, **{self.named: getattr(thing, self._id_field)}, said=said)

    def _done(self, request: HttpRequest, actor: Actor, opened: Any, act: str) -> HttpResponse:
        if opened is None or not act:
            return self._stored(request, opened)
        if act == "delete" and self.resource.deleted is not None:
            self.resource.deleted(opened, actor=actor, why=why(request))
            return go(self.address, said="deleted")
        if act not in self.acts:
            raise InvalidFieldsError([FieldProblem("", "There is no such action.")])
        return self._go(opened, self.acts[act](opened, actor=actor, why=why(request)))

    def _stored(self, request: HttpRequest, opened: Any) -> HttpResponse:
        fields = self.resource.created_fields if opened is None else settable_fields(self.resource.model)
        values, problems = typed_values(fields, request.POST)
        for name in values.keys() & {name for name, item in fields.items() if isinstance(item, models.ForeignKey)}:
            values[name] = fields[name].related_model._default_manager.filter(slug=values[name]).first()
            if values[name] is None:
                problems.append(FieldProblem(name, f"Choose a {declaration_of(fields[name]).title.lower()}."))
        if problems:
            raise InvalidFieldsError(problems)
        named = {"actor": console_actor(request), "why": why(request)}
        if opened is None:
            return self._go(self.resource.created(**values, **named), "created")
        self.resource.changed(opened, values, expected=row_number(request.POST.get("revision")), **named)
        return self._go(opened, "changed")

    def rendered(
        self,
        request: HttpRequest,
        *,
        opened: Any = None,
        creating: bool = False,
        problems: Sequence[FieldProblem] = (),
        keep_typed: bool = True,
        status: int = 200,
        once: Mapping[str, Any] = _NOTHING,
    ) -> HttpResponse:
        """Return the page with the list, the opened object or the form of a new one, and what is shown only `once`."""
        actor, resource = console_actor(request), self.resource
        may_change = may(actor, resource.changes_need)
        things, wanted = self.counted(resource.rows(actor)), asked(request, "q") if self.search else ""
        if wanted:
            things = things.filter(Q(*((lookup, wanted) for lookup in self.search), _connector=Q.OR))
        page = listed(request, things, PAGE_ROWS) if self.search else None
        listing = list(things if page is None else page.object_list)
        name = getattr(opened, self._id_field) if opened else asked(request, self.named)
        shown = next((thing for thing in listing if getattr(thing, self._id_field) == name), None)
        shown = things.filter(**{self._id_field: name}).first() if name and shown is None else shown
        creating = may_change and (creating or (request.method != "POST" and "new" in request.GET))
        fields = self._fields(request, None if creating else shown) if may_change and (creating or shown) else []
        fields = filled([*fields, _WHY] if fields else [], typed_fields(request) if keep_typed else {}, problems)
        rows = self.shown(listing)
        context = shell_context(
            request,
            page=self.page,
            tabs=self.tabs(actor),
            tab=self.tab,
            noun=self._nouns[0],
            nouns=self._nouns[1],
            counted_noun=self.noun,
            address=self.address,
            kind=kind_of(resource.model()),
            back=f"{self.address}?{self.named}=",
            verb=f"Delete {self._nouns[0]}",
            deletable=resource.deleted is not None,
            named=self.named,
            search=bool(self.search),
            paging=page,
            wanted=wanted,
            keep=kept(q=wanted),
            key=name if shown else "",
            rows=rows,
            table=self._table(rows) if self.shown is list else (),
            creating=creating,
            opened=shown,
            facts=self._facts(shown) if shown else (),
            fields=fields,
            problem=general_problem(fields, problems),
            may_change=may_change,
            needs=resource.changes_need,
            said=self.said.get(request.GET.get("said", ""), ""),
            **{**self.besides(request), **once},
            deleting=may_change and shown is not None and "delete" in request.GET,
            **(self.context(actor, shown) if self.context is not None and shown else {}),
        )
        return render(request, self.template, context, status=status)

    def _facts(self, thing: Any) -> list[tuple[str, str]]:
        named = facts(self.resource.created_fields, thing)
        given = [
            (title, self.written[title](thing))
            if title in self.written
            else (title, self.blanks.get(title, text) if text == "—" else text)
            for title, text in named
        ]
        return [*given, *(self.more(thing) if self.more is not None else ())]

    def _table(self, things: Sequence[Any]) -> dict[str, Any]:
        """Return the titles of the columns, and the id of each object with its cells; the first one names it."""
        lines = [(getattr(thing, self._id_field), self._facts(thing)) for thing in things]
        return {"titles": [title for title, _ in lines[0][1]] if lines else [], "lines": lines}

    def _fields(self, request: HttpRequest, shown: Any) -> list[FormField]:
        """Return the fields of an object; those of a new one have the values that the address proposes."""
        options = self.options()
        if shown is not None:
            return form_fields(settable_fields(self.resource.model), shown, options)
        fields = form_fields(self.resource.created_fields, options=options)
        given = {name: [text] for name in self.resource.created_fields if (text := asked(request, name))}
        return filled(fields, given, ())
