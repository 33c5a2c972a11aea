"""What the form of a pool's settings does."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.views.decorators.http import require_POST

from controlplane.request_actor import actor_of
from controlplane.services.actor import CONSOLE
from controlplane.services.field_problems import InvalidFieldsError
from controlplane.services.revisions import StaleRevisionError
from controlplane.services.roles import NotAllowedError
from controlplane.services.topology import change_pool
from web.pages.topology import NOTE, POOL_GONE, seen_pools, topology_page
from web.pages.topology_changes import seen_revision
from web.pages.topology_pool import pool_drawer, seen_pool, wanted
from web.pages.topology_scope import TopologyScope


@require_POST
def change_settings(request: HttpRequest, slug: str) -> HttpResponse:
    """Change a pool's settings as somebody saw them; 412 with how they stand where somebody else was first."""
    actor = actor_of(request, CONSOLE)
    pools = seen_pools(actor)
    pool = seen_pool(slug, pools)
    if pool is None:
        return topology_page(request, actor, pools, note=POOL_GONE, status=404)
    typed, changes, problems = wanted(request)
    try:
        if problems:
            raise InvalidFieldsError(problems)
        changed = change_pool(pool, changes, actor=actor, expected=seen_revision(request), why=typed["why"])
    except InvalidFieldsError as error:
        drawer = pool_drawer(pool, actor, typed=typed, problems=error.problems)
        return topology_page(request, actor, pools, drawer=drawer, status=422)
    except NotAllowedError as error:
        return topology_page(request, actor, pools, drawer=pool_drawer(pool, actor), note=str(error), status=403)
    except StaleRevisionError as error:
        note = f"{error.current.name} was changed meanwhile. Nothing was overwritten; look at it again."
        drawer = pool_drawer(error.current, actor)
        return topology_page(request, actor, seen_pools(actor), drawer=drawer, note=note, status=412)
    request.session[NOTE] = f"The settings of {changed.name} are stored; gateways follow within a second."
    return HttpResponseRedirect(TopologyScope.of(request.GET).address(settings=changed.slug))
