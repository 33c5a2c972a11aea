"""The verbs of the Steering page: each form calls one service and goes back to the pool."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from controlplane.automation import engine_orders, engine_trust
from controlplane.automation import switches as steering
from controlplane.automation.models.engine_order import EngineOrder
from controlplane.automation.plan_advice import AdviceError, follow_advice
from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import Pool
from controlplane.platform.actor import CONSOLE, Actor
from controlplane.platform.field_problems import FieldProblem, InvalidFieldsError
from controlplane.platform.request_actor import actor_of
from controlplane.platform.revisions import StaleRevisionError
from controlplane.platform.role import Role
from controlplane.platform.roles import NotAllowedError, require
from web.access.page import go, sent, why
from web.automation.page import pool_response, seen_pool
from web.automation.questions import ask
from web.shell.form_field import whole_number

Verb = Callable[[Pool, Actor, datetime], str]
"""Does it and returns the code of what the page says afterwards."""


@require_POST
@never_cache
def freeze(request: HttpRequest, slug: str) -> HttpResponse:
    """Let no automation of the pool do anything."""
    return _switch(request, slug, "freeze", steering.freeze, "frozen")


@require_POST
@never_cache
def unfreeze(request: HttpRequest, slug: str) -> HttpResponse:
    """Let the automations go on."""
    return _switch(request, slug, "unfreeze", steering.unfreeze, "unfrozen")


@require_POST
@never_cache
def override(request: HttpRequest, slug: str) -> HttpResponse:
    """Hold the pool at a number of engines for a while."""

    def verb(pool: Pool, actor: Actor, now: datetime) -> str:
        problems: list[FieldProblem] = []
        engines = whole_number("engines", request.POST.get("engines", ""), problems)
        prefill = whole_number("prefill", request.POST.get("prefill", ""), problems)
        length_s = whole_number("length_s", request.POST.get("length_s", ""), problems)
        if length_s is None or not 0 < length_s <= steering.LONGEST_OVERRIDE.total_seconds():
            problems.append(FieldProblem("length_s", "Choose a duration, seven days at most."))
        if problems or length_s is None:
            raise InvalidFieldsError(problems)
        # A minute less than the longest, which the service measures with a clock read a moment later.
        until = now + min(timedelta(seconds=length_s), steering.LONGEST_OVERRIDE - timedelta(minutes=1))
        steering.take_over(
            pool,
            until=until,
            actor=actor,
            engines=engines,
            prefill=prefill,
            expected=_revision(request),
            why=why(request),
        )
        return "held"

    return _done(request, slug, "override", verb)


@require_POST
@never_cache
def end_override(request: HttpRequest, slug: str) -> HttpResponse:
    """Let the automations steer again."""
    return _switch(request, slug, "end-override", steering.give_back, "given-back")


@require_POST
@never_cache
def follow(request: HttpRequest, slug: str) -> HttpResponse:
    """Carry out what an automation advises."""

    def verb(pool: Pool, actor: Actor, now: datetime) -> str:
        job, key = sent(request, "job", 64), sent(request, "advice", 4000)
        orders = follow_advice(pool, job, key, actor=actor, at=now, why=why(request))
        return "ordered" if orders else "nothing"

    return _done(request, slug, "follow", verb, job=sent(request, "job", 64))


@require_POST
@never_cache
def confirm_order(request: HttpRequest, slug: str, key: str) -> HttpResponse:
    """Note that a person did what an order asks for."""
    return _answer(request, slug, key, "confirm", engine_orders.confirm, "confirmed")


@require_POST
@never_cache
def withdraw_order(request: HttpRequest, slug: str, key: str) -> HttpResponse:
    """Take an order back."""
    return _answer(request, slug, key, "withdraw", engine_orders.withdraw, "withdrawn")


@require_POST
@never_cache
def quarantine(request: HttpRequest, slug: str, engine_id: str) -> HttpResponse:
    """Let an engine get no new work."""
    return _judge(request, slug, engine_id, "quarantine", engine_trust.quarantine, "quarantined")


@require_POST
@never_cache
def trust(request: HttpRequest, slug: str, engine_id: str) -> HttpResponse:
    """Give a quarantined engine its work back."""
    return _judge(request, slug, engine_id, "trust", engine_trust.trust_again, "trusted")


def _switch(request: HttpRequest, slug: str, do: str, turn: Callable[..., object], said: str) -> HttpResponse:
    """Turn one of the pool's switches, which needs nothing but a reason."""

    def verb(pool: Pool, actor: Actor, _now: datetime) -> str:
        turn(pool, actor=actor, expected=_revision(request), why=why(request))
        return said

    return _done(request, slug, do, verb)


def _answer(
    request: HttpRequest, slug: str, key: str, do: str, answer: Callable[..., object], said: str
) -> HttpResponse:
    """Answer one order of the pool."""

    def verb(pool: Pool, actor: Actor, _now: datetime) -> str:
        answer(_order(pool, key), actor=actor, why=why(request))
        return said

    return _done(request, slug, do, verb, order=key)


def _judge(
    request: HttpRequest, slug: str, engine_id: str, do: str, judge: Callable[..., bool], said: str
) -> HttpResponse:
    """Put a person's verdict on one engine of the pool into force."""

    def verb(pool: Pool, actor: Actor, now: datetime) -> str:
        return said if judge(_engine(pool, engine_id), actor=actor, at=now, why=why(request)) else "nothing"

    return _done(request, slug, do, verb, engine=engine_id)


def _done(request: HttpRequest, slug: str, do: str, verb: Verb, **about: str) -> HttpResponse:
    """Do it and go back to the pool; what is refused shows its question again, with the reason."""
    actor, now = actor_of(request, CONSOLE), timezone.now()
    pool = seen_pool(actor, slug)
    problems: list[FieldProblem] = []
    try:
        # Who may not steer hears that first, whatever else is wrong with the form.
        require(actor, Role.OPERATOR, pool)
        said = verb(pool, actor, now)
    except InvalidFieldsError as error:
        problems, words, status = list(error.problems), "", 422
    except NotAllowedError as error:
        words, status = str(error), 403
    except StaleRevisionError:
        words, status = (
            "Somebody else changed this pool. The page shows the current state; review it, then decide again.",
            412,
        )
    except (AdviceError, engine_orders.EngineOrderError) as error:
        words, status = str(error), 409
    else:
        kept = {name: sent(request, name, 24) for name in ("range", "end")}
        return go(reverse("steering-pool", args=[slug]), **kept, said=said)
    pool = seen_pool(actor, slug)
    question = ask(pool, do, about, now)
    typed = {name: request.POST.getlist(name) for name in request.POST}
    refused = question.refused(problems, typed, words) if question is not None else None
    return pool_response(request, actor, pool, refused, status=status, trouble=words)


def _revision(request: HttpRequest) -> int | None:
    return whole_number("", request.POST.get("revision", ""), [])


def _order(pool: Pool, key: str) -> EngineOrder:
    found: EngineOrder = get_object_or_404(EngineOrder.objects.select_related("pool"), pool=pool, key=key)
    return found


def _engine(pool: Pool, engine_id: str) -> Engine:
    found: Engine = get_object_or_404(Engine.objects.select_related("pool"), pool=pool, engine_id=engine_id)
    return found
