"""The base of all trial pages: lists, the drawer that starts a trial, result pages, and rejected actions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar

from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.views.decorators.http import require_POST, require_safe

from controlplane.fleet.models.pool import Pool
from controlplane.platform.actor import Actor
from controlplane.platform.conflict import ConflictError
from controlplane.platform.field_problems import problem
from controlplane.platform.role import Role
from controlplane.platform.roles import may_somewhere
from web.shell.console_request import console_actor, listed, sent, sent_or_asked, typed_fields
from web.shell.form_field import FormField, filled, general_problem
from web.shell.frame import shell_context
from web.shell.no_role import lacks_role
from web.shell.rejection import FormRejection, attempted
from web.shell.shown_pools import chosen_pool, needed_role, operated_pools

ADDRESS = "/trials"
_LISTED_POOLS = 20


class TrialPages(ABC):
    """The pages of one kind of trial: the list with the start form, the page of each trial, and its actions."""

    name: ClassVar[str]
    plural: ClassVar[str]
    address: ClassVar[str]
    action: ClassVar[str] = "Start"
    """Verb on the button that starts a trial, before the trial's name."""
    needs_role_in: ClassVar[str] = "a pool"
    """Object in which starting a trial requires the role operator."""
    id_field: ClassVar[str] = "pk"
    """Field that identifies a trial in URLs and in the audit log."""
    page: ClassVar[str] = "trials/page.html"
    conflicts: ClassVar[tuple[type[Exception], ...]] = (ConflictError,)
    """Errors of actions that a later retry or freed capacity can resolve."""

    @abstractmethod
    def visible(self, actor: Actor) -> QuerySet[Any]:
        """Return the trials that the actor can see."""

    @abstractmethod
    def rows(self, trials: list[Any], actor: Actor, now: datetime) -> dict[str, Any]:
        """Return the template context for one page of the list, with a row per trial in `rows`."""

    @abstractmethod
    def fields(self, request: HttpRequest, owner: Any, actor: Actor) -> Sequence[FormField]:
        """Return the fields of the start form for the owner, which is a pool or a policy."""

    @abstractmethod
    def start(self, request: HttpRequest, actor: Actor) -> Model:
        """Start the trial in the submitted form; raise InvalidFieldsError, NotAllowedError, or one of `conflicts`."""

    @abstractmethod
    def shown(
        self, request: HttpRequest, trial: Any, actor: Actor, now: datetime, rejection: FormRejection | None
    ) -> dict[str, Any]:
        """Return the context of a trial's page, with its `title`, `running`, and a line `about` the trial."""

    @abstractmethod
    def turn(self, request: HttpRequest, trial: Any, action: str, actor: Actor) -> object:
        """Carry out an action of the trial's page; raises the same errors as `start`."""

    def form(self, request: HttpRequest, actor: Actor) -> dict[str, Any]:
        """Return the form's context: `chosen` (the pool or policy), `picks` to choose from, and the fields."""
        pool, picks = chosen_pool(actor, sent_or_asked(request, "pool")), operated_pools(actor)[:_LISTED_POOLS]
        return {
            "pool": pool,
            "chosen": ("pool", pool.slug) if pool else None,
            "picks": [pick.slug for pick in picks],
            "fields": self.fields(request, pool, actor) if pool else (),
        }

    def form_needs(self, request: HttpRequest, actor: Actor) -> str:
        """Return the role that the form requires; empty if the actor has it."""
        return needed_role(request, actor)

    def page_needs(self, request: HttpRequest, trial: Any, actor: Actor) -> str:
        """Return the role that an action of the page requires; empty if the actor has it."""
        return ""

    @property
    def key(self) -> str:
        """URL name of the trial's page, and name of its template folder."""
        return self.name.replace("-", "")

    @property
    def start_name(self) -> str:
        """URL name of the page that starts a trial."""
        return f"{self.key}-start"

    @method_decorator(require_safe)
    def list_view(self, request: HttpRequest) -> HttpResponse:
        """List the trials; with `new`, also show the form that starts one."""
        return self._list(request)

    @method_decorator(require_POST)
    def start_view(self, request: HttpRequest) -> HttpResponse:
        """Start a trial and redirect to its page."""
        made = attempted(lambda: self.start(request, console_actor(request)), *self.conflicts)
        return self._list(request, made) if isinstance(made, FormRejection) else redirect(self._address(made))

    @method_decorator(require_safe)
    def page_view(self, request: HttpRequest, **ids: object) -> HttpResponse:
        """Show a trial; with `fragment` only its live section."""
        return self._page(request, ids)

    @method_decorator(require_POST)
    def action_view(self, request: HttpRequest, *, action: str, **ids: object) -> HttpResponse:
        """Carry out one of the trial's actions and redirect to its page."""
        trial, actor = self._trial(request, ids), console_actor(request)
        done = attempted(lambda: self.turn(request, trial, action, actor), *self.conflicts)
        return self._page(request, ids, done) if isinstance(done, FormRejection) else redirect(self._address(trial))

    def _trial(self, request: HttpRequest, ids: Mapping[str, object]) -> Any:
        (wanted,) = ids.values()
        return get_object_or_404(self.visible(console_actor(request)), **{self.id_field: wanted})

    def _address(self, trial: Model) -> str:
        return reverse(self.key, args=[getattr(trial, self.id_field)])

    def _list(self, request: HttpRequest, rejection: FormRejection | None = None) -> HttpResponse:
        actor, creating = console_actor(request), request.method == "POST" or "new" in request.GET
        if creating and (needed := self.form_needs(request, actor)):
            return lacks_role(request, "Policies", needed, self.address)
        paging = listed(request, self.visible(actor))
        context = shell_context(
            request, page="Policies", tab=self.key, kind=self, paging=paging, keep="", creating=creating
        )
        context["may_new"] = may_somewhere(actor, Role.OPERATOR)
        context |= self.rows(list(paging.object_list), actor, timezone.now())
        if creating:
            form, problems = self.form(request, actor), rejection.problems if rejection else ()
            typed = typed_fields(request)
            context |= {**form, "fields": filled(form["fields"], typed, problems)}
            context["problem"] = general_problem(form["fields"], problems)
        return render(request, f"trials/{self.key}/list.html", context, status=rejection.status if rejection else 200)

    def _page(
        self, request: HttpRequest, ids: Mapping[str, object], rejection: FormRejection | None = None
    ) -> HttpResponse:
        actor, trial = console_actor(request), self._trial(request, ids)
        if needed := self.page_needs(request, trial, actor):
            return lacks_role(request, "Policies", needed, self._address(trial))
        context = shell_context(
            request,
            page="Policies",
            kind=self,
            refresh=f"{self._address(trial)}?fragment",
            live=f"trials/{self.key}/live.html",
            problem=rejection.words if rejection else "",
            **{self.key: trial},
            **self.shown(request, trial, actor, timezone.now(), rejection),
        )
        part = context["live"] if "fragment" in request.GET else self.page
        return render(request, part, context, status=rejection.status if rejection else 200)


def sent_pool(request: HttpRequest, actor: Actor) -> Pool:
    """Return the pool in the submitted form; raise InvalidFieldsError."""
    pool = chosen_pool(actor, sent(request, "pool"))
    if pool is None:
        raise problem("", "No such pool.")
    return pool
