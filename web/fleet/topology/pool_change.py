"""The forms of a pool's settings: change them, and stop routing the pool."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.views.decorators.http import require_POST

from controlplane.fleet.models.pool import Pool, PoolMode
from controlplane.fleet.topology import change_pool
from controlplane.platform.actor import Actor
from controlplane.platform.field_problems import InvalidFieldsError
from controlplane.platform.revisions import StaleRevisionError
from controlplane.platform.role import Role
from controlplane.platform.roles import NotAllowedError, may
from web.fleet.topology.changes import seen_revision
from web.fleet.topology.page import NOTE, POOL_GONE, topology_page, topology_pools
from web.fleet.topology.pool import form_settings, pool_drawer, shown_pool
from web.fleet.topology.scope import TopologyScope
from web.shell.console_request import console_actor, sent
from web.shell.resource_form import typed_values


@require_POST
def change_settings(request: HttpRequest, slug: str) -> HttpResponse:
    """Change a pool's settings; 412 with the current ones if they changed after the person read them."""
    actor = console_actor(request)
    pools = topology_pools(actor)
    pool = shown_pool(slug, pools)
    if pool is None:
        return topology_page(request, actor, pools, note=POOL_GONE, status=404)
    changes, problems = typed_values(form_settings(pool), request.POST)
    try:
        if problems:
            raise InvalidFieldsError(problems)
        changed = change_pool(pool, changes, actor=actor, expected=seen_revision(request), why=sent(request, "why"))
    except InvalidFieldsError as error:
        drawer = pool_drawer(pool, actor, posted=request.POST, problems=error.problems)
        return topology_page(request, actor, pools, drawer=drawer, status=422)
    except (NotAllowedError, StaleRevisionError) as error:
        return _rejected(request, actor, pool, error)
    request.session[NOTE] = f"Settings of {changed.name} saved; gateways apply them within a second."
    return HttpResponseRedirect(TopologyScope.of(request.GET).address(settings=changed.slug))


@require_POST
def observe(request: HttpRequest, slug: str) -> HttpResponse:
    """Stop routing a pool and only observe it; the pool's name must be typed as confirmation."""
    actor = console_actor(request)
    pools = topology_pools(actor)
    pool = shown_pool(slug, pools)
    if pool is None:
        return topology_page(request, actor, pools, note=POOL_GONE, status=404)
    if may(actor, Role.ADMIN) and sent(request, "typed") != pool.slug:
        drawer = pool_drawer(pool, actor, observe_problem=f"Type {pool.slug} to stop routing it.")
        return topology_page(request, actor, pools, drawer=drawer, status=422)
    changes = {"mode": PoolMode.OBSERVE}
    try:
        changed = change_pool(pool, changes, actor=actor, expected=seen_revision(request), why=sent(request, "why"))
    except (NotAllowedError, StaleRevisionError) as error:
        return _rejected(request, actor, pool, error)
    request.session[NOTE] = f"{changed.name} is observe-only; /v1 and /api/v1/route answer 409 for it."
    return HttpResponseRedirect(TopologyScope.of(request.GET).address(settings=changed.slug))


def _rejected(
    request: HttpRequest, actor: Actor, pool: Pool, error: NotAllowedError | StaleRevisionError
) -> HttpResponse:
    """Show the drawer again with the reason why nothing was changed."""
    if isinstance(error, NotAllowedError):
        drawer = pool_drawer(pool, actor)
        return topology_page(request, actor, topology_pools(actor), drawer=drawer, note=str(error), status=403)
    note = f"Another person changed {error.current.name}. Nothing was overwritten. Review the current state."
    drawer = pool_drawer(error.current, actor)
    return topology_page(request, actor, topology_pools(actor), drawer=drawer, note=note, status=412)
