"""The data and actions of the engine drawer on the Fleet page."""

from __future__ import annotations

import time

import msgspec
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode
from django.views.decorators.http import require_POST, require_safe

from controlplane.automation.engine_verdicts import quarantine, trust_again
from controlplane.fleet.engine_lifecycle import set_desired_state
from controlplane.fleet.models.engine import BY_HAND, DesiredState, Engine
from controlplane.platform.actor import Actor
from controlplane.platform.revisions import StaleRevisionError
from controlplane.platform.role import Role
from controlplane.platform.roles import NotAllowedError, may, require
from controlplane.request_log.decision_reading import find_decision
from gateway.contracts.explanation import explanation
from web.fleet.topology.drawer import sample_of
from web.live.engine_card import engine_card
from web.live.feed import fleet_feed
from web.shell.console_request import console_actor

JSON = "application/json"
MAX_WHY = 200
_DONE = {
    DesiredState.READY: "{} returns to service within 2 s.",
    DesiredState.DRAINING: "{} is draining: in-flight requests finish there, new ones go to other engines.",
    DesiredState.MAINTENANCE: "{} is in maintenance: it receives no requests and no probes.",
    "quarantine": "{} is quarantined: new requests go to other engines.",
    "trust": "{} gets its full share of new requests.",
}
_VERDICTS = {"quarantine": quarantine, "trust": trust_again}
"""Overrides of the health verdict, by the form's `state`."""


@require_safe
def card(request: HttpRequest, engine_id: str) -> HttpResponse:
    """Return the engine's card as JSON."""
    actor = console_actor(request)
    engine = _engine(engine_id, actor)
    seen = sample_of(fleet_feed().latest, engine_id, time.time())
    return HttpResponse(msgspec.json.encode(engine_card(engine, actor, seen)), content_type=JSON)


@require_safe
def decision(request: HttpRequest, decision_id: str) -> HttpResponse:
    """Return why a request was placed on its engine, as JSON in the format of the gateway's explain API."""
    match = find_decision(console_actor(request), decision_id)
    if match is None or match.record is None:
        raise Http404("decision")
    made = match.record.decision
    ids = [made.engine_id, made.pair.engine_id if made.pair is not None else ""]
    names = dict(Engine.objects.filter(engine_id__in=ids).values_list("engine_id", "name"))
    return HttpResponse(msgspec.json.encode(explanation(match.record, names)), content_type=JSON)


@require_POST
def set_state(request: HttpRequest, engine_id: str) -> HttpResponse:
    """Change the engine's desired state or health: form fields `state`, `why` and `revision` (as in the drawer).

    Return JSON to scripts; redirect other clients to the drawer.
    """
    actor = console_actor(request)
    engine = _engine(engine_id, actor)
    try:
        # A missing role is reported before any other problem of the form.
        require(actor, Role.OPERATOR, engine.pool)
        state, expected, why = _form(request)
        if state in _VERDICTS:
            _VERDICTS[state](engine, actor=actor, at=timezone.now(), why=why)
        else:
            set_desired_state(engine, DesiredState(state), actor=actor, expected=expected, why=why)
    except _BadFormError as error:
        return _rejected(request, str(error), 400)
    except NotAllowedError as error:
        return _rejected(request, str(error), 403)
    except StaleRevisionError as error:
        now = DesiredState(error.current.desired_state)
        text = f"Another person changed {engine.name} to {now.value}. Review it, then repeat your change."
        return _rejected(request, text, 412)
    if _wants_json(request):
        return JsonResponse({"message": _DONE[state].format(engine.name)})
    return HttpResponseRedirect(f"{reverse('fleet')}?{urlencode({'engine': engine_id})}")


class _BadFormError(ValueError):
    """A form field is invalid; the message states which one and why."""


def _form(request: HttpRequest) -> tuple[str, int | None, str]:
    state = request.POST.get("state", "")
    if state not in (*BY_HAND, *_VERDICTS):
        raise _BadFormError(f"state must be one of {', '.join((*BY_HAND, *_VERDICTS))}.")
    revision = request.POST.get("revision", "")
    if revision and (not revision.isascii() or not revision.isdecimal() or len(revision) > 9):
        raise _BadFormError("revision must be a whole number; leave it out to change the engine as it is now.")
    why = request.POST.get("why", "").strip()
    if len(why) > MAX_WHY:
        raise _BadFormError(f"The reason has {len(why)} characters; the maximum is {MAX_WHY}.")
    return state, int(revision) if revision else None, why


def _engine(engine_id: str, actor: Actor) -> Engine:
    """Return the engine if the actor can see its pool; otherwise 404."""
    engine = get_object_or_404(Engine.objects.select_related("pool", "health"), engine_id=engine_id)
    if not may(actor, Role.VIEWER, engine.pool):
        # Not 403, which would reveal that a hidden pool has an engine of this id.
        raise Http404("engine")
    return engine


def _wants_json(request: HttpRequest) -> bool:
    return JSON in request.headers.get("Accept", "")


def _rejected(request: HttpRequest, message: str, status: int) -> HttpResponse:
    if _wants_json(request):
        return JsonResponse({"error": message}, status=status)
    return HttpResponse(message, status=status, content_type="text/plain; charset=utf-8")
