"""The form actions of the Engines page: register, change, move, delete, and check engines."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import wraps
from typing import Any

from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.views.decorators.http import require_POST

from controlplane.fleet.engine_lifecycle import EngineNotEmptyError, delete_engine, set_desired_state
from controlplane.fleet.engine_registration import ADDRESS_FIELDS, change_engine, checked_addresses
from controlplane.fleet.models.engine import DesiredState, Engine
from controlplane.fleet.preflight.lifecycle import preflight_of, register_for_preflight, start_preflight
from controlplane.platform.field_problems import FieldProblem, InvalidInputError
from controlplane.platform.revisions import StaleRevisionError
from controlplane.platform.roles import NotAllowedError
from web.fleet.topology.drawer import VERBS, confirm_delete, engine_drawer, history, in_flight, sample_of
from web.fleet.topology.form import CHANGED, CREATED, MAX_WHY, change_drawer, merge_drawer, register_drawer
from web.fleet.topology.page import GONE, NOTE, changeable_pools, shown_engine, topology_page, topology_pools
from web.fleet.topology.scope import TopologyScope
from web.live.feed import fleet_feed
from web.shell.console_request import console_actor, row_number
from web.shell.resource_form import typed_changes, typed_values

Change = Callable[[HttpRequest, Engine], HttpResponse]


def on_engine(change: Change) -> Callable[[HttpRequest, str], HttpResponse]:
    """Apply a change to the engine; 404 if it is deleted or not visible, 403 if a role is missing."""

    @require_POST
    @wraps(change)
    def view(request: HttpRequest, engine_id: str) -> HttpResponse:
        actor = console_actor(request)
        pools = topology_pools(actor)
        engine = shown_engine(engine_id, pools)
        if engine is None:
            return topology_page(request, actor, pools, note=GONE, status=404)
        try:
            return change(request, engine)
        except NotAllowedError as error:
            return _again(request, engine, note=str(error), status=403)

    return view


@require_POST
def register(request: HttpRequest) -> HttpResponse:
    """Register an engine and start its preflight. It gets no work before the preflight has passed."""
    actor = console_actor(request)
    pools = topology_pools(actor)
    values, problems = typed_values(CREATED, request.POST)
    pool = next((pool for pool in pools if pool.slug == values.pop("pool", "")), None)
    if pool is None:
        problems.append(FieldProblem("pool", "Choose a pool."))
    status = 422
    try:
        if not problems and pool is not None:
            ready = bool(request.POST.get("then_ready"))
            engine = register_for_preflight(pool, **values, then_ready=ready, actor=actor, why=_why(request))
            return _to_engine(request, engine, f"{engine.name} registered; preflight running.")
        # All problems are reported together, so the addresses are checked although nothing will be stored.
        checked_addresses(values, pool)
    except InvalidInputError as error:
        problems += _shown(error)
    except NotAllowedError as error:
        problems.append(FieldProblem("", str(error)))
        status = 403
    drawer = register_drawer(changeable_pools(actor, pools), posted=request.POST, problems=problems)
    return topology_page(request, actor, pools, drawer=drawer, status=status)


@on_engine
def change(request: HttpRequest, engine: Engine) -> HttpResponse:
    """Store the changed fields and check the engine again; 412 if another person changed it in the meantime."""
    actor = console_actor(request)
    values, problems = typed_values(CHANGED, request.POST)
    changes = typed_changes(values, CHANGED, request.POST)
    if not problems:
        try:
            with transaction.atomic():
                before = preflight_of(engine)
                change_engine(engine, changes, actor=actor, expected=seen_revision(request), why=_why(request))
                # Only another address needs another check.
                if changes.keys() & set(ADDRESS_FIELDS):
                    # An engine that still waits for its first pass serves after it, as asked at its registration.
                    then_ready = before is not None and before.then_ready and before.state != "passed"
                    start_preflight(engine, actor=actor, then_ready=then_ready)
        except InvalidInputError as error:
            problems += _shown(error)
        except StaleRevisionError as error:
            drawer = merge_drawer(error.current, request.POST)
            drawer["history"] = history(error.current, time.time())
            return topology_page(request, actor, topology_pools(actor), drawer=drawer, status=412)
        else:
            return _to_engine(request, engine, f"{engine.name} changed." if changes else "No changes.")
    drawer = change_drawer(engine, seen_revision(request), request.POST, problems)
    return topology_page(request, actor, topology_pools(actor), drawer=drawer, status=422)


def _shown(error: InvalidInputError) -> list[FieldProblem]:
    """Return the problems at the fields of the form, each as a sentence."""
    return [
        FieldProblem("url" if one.path == "connect_url" else one.path, one.message[:1].upper() + one.message[1:])
        for one in error.field_problems
    ]


@on_engine
def move(request: HttpRequest, engine: Engine) -> HttpResponse:
    """Set the engine ready, draining, or in maintenance; 412 if another person changed it in the meantime."""
    do = request.POST.get("do", "")
    if do not in VERBS:
        return _again(request, engine, note="Choose ready, drain or maintenance.", status=422)
    state = VERBS[do][0]
    try:
        set_desired_state(
            engine, state, actor=console_actor(request), expected=seen_revision(request), why=_why(request)
        )
    except StaleRevisionError as error:
        return _stale_move(request, error.current, state)
    words = {"ready": "returns to service", "drain": "is draining", "maintenance": "is in maintenance"}
    return _to_engine(request, engine, f"{engine.name} {words[do]}.")


@on_engine
def delete(request: HttpRequest, engine: Engine) -> HttpResponse:
    """Delete an empty engine after its name was typed as confirmation; 409 if it is not empty."""
    seen = sample_of(fleet_feed().latest, engine.engine_id, time.time())
    if request.POST.get("typed", "").strip() != engine.name:
        confirm = confirm_delete(engine, seen) | {"typed_error": f"Type {engine.name} to delete it."}
        return _again(request, engine, status=422, confirm=confirm)
    try:
        delete_engine(
            engine,
            actor=console_actor(request),
            in_flight=in_flight(seen),
            lost=seen is not None and seen.state == "lost",
            expected=seen_revision(request),
            why=_why(request),
        )
    except EngineNotEmptyError as error:
        return _again(request, engine, status=409, confirm=confirm_delete(engine, seen) | {"rejection": str(error)})
    except StaleRevisionError as error:
        return _again(
            request,
            error.current,
            note=f"Another person changed {engine.name}. Review its state.",
            status=412,
        )
    request.session[NOTE] = f"{engine.name} deleted."
    return HttpResponseRedirect(TopologyScope.of(request.GET).address())


@on_engine
def check(request: HttpRequest, engine: Engine) -> HttpResponse:
    """Check the engine again. An engine that waits for its first preflight gets work after it passes."""
    then_ready = engine.desired_state == DesiredState.MAINTENANCE and bool(request.POST.get("then_ready"))
    start_preflight(engine, actor=console_actor(request), then_ready=then_ready)
    return HttpResponseRedirect(TopologyScope.of(request.GET).address(engine=engine.engine_id))


def _stale_move(request: HttpRequest, theirs: Engine, wanted: DesiredState) -> HttpResponse:
    lines = [
        {
            "label": "State",
            "base": "",
            "theirs": DesiredState(theirs.desired_state).label,
            "mine": wanted.label,
            "both": True,
        }
    ]
    return _again(request, theirs, status=412, conflict=lines)


def _again(request: HttpRequest, engine: Engine, *, note: str = "", status: int, **drawer: Any) -> HttpResponse:
    """Render the page with the engine's drawer open; `drawer` adds to the drawer's context."""
    actor = console_actor(request)
    pools = topology_pools(actor)
    shown = engine_drawer(engine, fleet_feed().latest, actor, pools) | drawer
    return topology_page(request, actor, pools, drawer=shown, note=note, status=status)


def _to_engine(request: HttpRequest, engine: Engine, note: str) -> HttpResponse:
    request.session[NOTE] = note
    return HttpResponseRedirect(TopologyScope.of(request.GET).address(engine=engine.engine_id))


def seen_revision(request: HttpRequest) -> int:
    """Return the revision that the person saw; a form without a valid revision matches none."""
    number = row_number(request.POST.get("revision"), 9)
    return -1 if number is None else number


def _why(request: HttpRequest) -> str:
    return request.POST.get("why", "").strip()[:MAX_WHY]
