"""The forms of the Automation page. Each one calls one service and returns to the pool."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST

from controlplane.automation import engine_actions, engine_verdicts, switches
from controlplane.automation.models.engine_action import EngineAction
from controlplane.automation.plan_advice import AdviceError, follow_advice
from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import Pool
from controlplane.platform.actor import Actor
from controlplane.platform.field_problems import FieldProblem, InvalidFieldsError, problem
from controlplane.platform.revisions import StaleRevisionError
from controlplane.platform.role import Role
from controlplane.platform.roles import NotAllowedError, require
from web.automation.page import pool_response
from web.automation.questions import ask
from web.shell.console_request import console_actor, go, row_number, sent, typed_fields, why
from web.shell.form_field import whole_number
from web.shell.shown_pools import shown_pool

Verb = Callable[[HttpRequest, Pool, Actor, datetime, str], str]
"""Applies a button's action to an engine action, an engine, or the pool; returns the code of the message to show."""


@require_POST
def change_automation(request: HttpRequest, slug: str, do: str, key: str = "", engine_id: str = "") -> HttpResponse:
    """Apply the submitted action to the pool, an engine action, an engine, or an automation's advice."""
    job = sent(request, "job", 64) if do == "follow" else ""
    about = {name: which for name, which in (("action", key), ("engine", engine_id), ("job", job)) if which}
    return _done(request, slug, do, VERBS[do], about)


def _switch(turn: Callable[..., object], said: str) -> Verb:
    """Return the action that flips one of the pool's switches. It takes only a reason as input, required to freeze."""

    def verb(request: HttpRequest, pool: Pool, actor: Actor, _now: datetime, _about: str) -> str:
        if said == "frozen" and not why(request):
            raise problem("why", "Say why the pool is frozen; the audit and the page keep it.")
        turn(pool, actor=actor, expected=row_number(request.POST.get("revision")), why=why(request))
        return said

    return verb


def _override(request: HttpRequest, pool: Pool, actor: Actor, now: datetime, _about: str) -> str:
    """Hold the pool at a number of engines for a limited time."""
    problems: list[FieldProblem] = []
    engines = whole_number("engines", request.POST.get("engines", ""), problems)
    prefill = whole_number("prefill", request.POST.get("prefill", ""), problems)
    length_s = whole_number("length_s", request.POST.get("length_s", ""), problems)
    if length_s is None or not 0 < length_s <= switches.LONGEST_OVERRIDE.total_seconds():
        problems.append(FieldProblem("length_s", "Choose a duration, seven days at most."))
    if problems or length_s is None:
        raise InvalidFieldsError(problems)
    # One minute below the longest, since the service measures it with a slightly later clock.
    until = now + min(timedelta(seconds=length_s), switches.LONGEST_OVERRIDE - timedelta(minutes=1))
    known = {"expected": row_number(request.POST.get("revision")), "why": why(request)}
    switches.take_over(pool, until=until, actor=actor, engines=engines, prefill=prefill, **known)
    return "held"


def _follow(request: HttpRequest, pool: Pool, actor: Actor, now: datetime, job: str) -> str:
    """Apply an automation's advice."""
    actions = follow_advice(pool, job, sent(request, "advice", 4000), actor=actor, at=now, why=why(request))
    return "requested" if actions else "nothing"


def _answer(answer: Callable[..., object], said: str) -> Verb:
    """Return the action that answers one pending engine action of the pool."""

    def verb(request: HttpRequest, pool: Pool, actor: Actor, _now: datetime, key: str) -> str:
        action = get_object_or_404(EngineAction.objects.select_related("pool"), pool=pool, key=key)
        answer(action, actor=actor, why=why(request))
        return said

    return verb


def _judge(judge: Callable[..., bool], said: str) -> Verb:
    """Return the action that overrides the health verdict on one engine of the pool."""

    def verb(request: HttpRequest, pool: Pool, actor: Actor, now: datetime, engine_id: str) -> str:
        engine = get_object_or_404(Engine.objects.select_related("pool"), pool=pool, engine_id=engine_id)
        return said if judge(engine, actor=actor, at=now, why=why(request)) else "nothing"

    return verb


VERBS: dict[str, Verb] = {
    "freeze": _switch(switches.freeze, "frozen"),
    "unfreeze": _switch(switches.unfreeze, "unfrozen"),
    "override": _override,
    "end-override": _switch(switches.give_back, "given-back"),
    "follow": _follow,
    "confirm": _answer(engine_actions.confirm, "confirmed"),
    "withdraw": _answer(engine_actions.withdraw, "withdrawn"),
    "quarantine": _judge(engine_verdicts.quarantine, "quarantined"),
    "trust": _judge(engine_verdicts.trust_again, "trusted"),
}


def _done(request: HttpRequest, slug: str, do: str, verb: Verb, about: dict[str, str]) -> HttpResponse:
    """Apply the action and return to the pool. If it is rejected, show its form again with the reason."""
    actor, now = console_actor(request), timezone.now()
    pool = shown_pool(actor, slug)
    problems: list[FieldProblem] = []
    try:
        # A missing role is reported before any other problem of the form.
        require(actor, Role.OPERATOR, pool)
        said = verb(request, pool, actor, now, "".join(about.values()))
    except InvalidFieldsError as error:
        problems, words, status = list(error.problems), "", 422
    except NotAllowedError as error:
        words, status = str(error), 403
    except StaleRevisionError:
        words, status = (
            "Another person changed this pool. Review the current state, then repeat your change.",
            412,
        )
    except (AdviceError, engine_actions.EngineActionError) as error:
        words, status = str(error), 409
    else:
        kept = {name: sent(request, name, 24) for name in ("range", "end")}
        return go(reverse("automation-pool", args=[slug]), **kept, said=said)
    pool = shown_pool(actor, slug)
    question = ask(pool, do, about, now)
    typed = typed_fields(request)
    rejected = question.rejected(problems, typed, words) if question is not None else None
    return pool_response(request, actor, pool, rejected, status=status, trouble=words)
