"""Connecting an engine: query it, show what will be created, and create it."""

from __future__ import annotations

from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.views.decorators.http import require_POST

from controlplane.fleet.connect.address import engine_address, facts_at, may_be_asked
from controlplane.fleet.connect.connection import make_connection, plan_connection, targets
from controlplane.fleet.connect.engine_facts import ConnectRejectedError
from controlplane.fleet.engine_url import RejectedUrlError
from controlplane.platform.actor import Actor
from controlplane.platform.field_problems import InvalidFieldsError
from controlplane.platform.role import Role
from controlplane.platform.roles import may
from routing.values.counted import count
from web.fleet.topology.connect_form import ALLOW, KEY, POOL, URL, allowed_by, connect_drawer, text_of, wishes_of
from web.fleet.topology.page import NOTE, topology_page, topology_pools
from web.fleet.topology.scope import TopologyScope
from web.shell.console_request import console_actor

ADMINS_ONLY = "Connecting requires the role admin; ask an admin."


@require_POST
def connect(request: HttpRequest) -> HttpResponse:
    """Advance the form by one step. No request is sent to the engine before a person allows its address."""
    actor = console_actor(request)
    if not may(actor, Role.ADMIN):
        return topology_page(request, actor, topology_pools(actor), note=ADMINS_ONLY, status=403)
    try:
        return _next_step(request, actor)
    except ConnectRejectedError as error:
        rejection = error
    except (RejectedUrlError, InvalidFieldsError) as error:
        problems = error.field_problems if isinstance(error, RejectedUrlError) else error.problems
        rejection = ConnectRejectedError(
            " ".join(f"{item.path}: {item.message}" for item in problems), "Correct the form."
        )
    return topology_page(
        request, actor, topology_pools(actor), drawer=connect_drawer(request.POST, rejection=rejection), status=422
    )


def _next_step(request: HttpRequest, actor: Actor) -> HttpResponse:
    posted = request.POST
    address = engine_address(text_of(posted, URL))
    allowed = text_of(posted, ALLOW) == allowed_by(address)
    if not allowed and not may_be_asked(address):
        return topology_page(request, actor, topology_pools(actor), drawer=connect_drawer(posted, consent=address))
    facts = facts_at(address, pool=text_of(posted, POOL), key_variable=text_of(posted, KEY))
    ranks = targets(facts, address)
    plan = plan_connection(*ranks[0], wishes_of(posted))
    if text_of(posted, "do") != "connect" or (plan.networks and not allowed):
        drawer = connect_drawer(posted, plan=plan, facts=facts, others=len(ranks) - 1)
        return topology_page(request, actor, topology_pools(actor), drawer=drawer)
    with transaction.atomic():
        # Planned one after the other: the first rank may create the pool that the others join.
        engine, *others = [make_connection(plan_connection(*item, wishes_of(posted)), actor=actor) for item in ranks]
    note = f"{engine.name} registered; it serves as soon as its preflight passes."
    if others:
        note = (
            f"{engine.name} and {count(len(others), 'other rank')} registered; each serves once its preflight passes."
        )
    request.session[NOTE] = note
    return HttpResponseRedirect(TopologyScope.of(request.GET).address(engine=engine.engine_id))
