"""The form that creates a pool, with a new region or policy if needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.views.decorators.http import require_POST

from controlplane.fleet.models.pool import Pool
from controlplane.fleet.models.region import Region
from controlplane.fleet.topology import create_pool, create_region
from controlplane.platform.actor import Actor
from controlplane.platform.field_problems import InvalidFieldsError, problem
from controlplane.platform.roles import NotAllowedError
from controlplane.policies.models.policy import Policy
from controlplane.policies.publish import create_live_policy
from web.fleet.topology.new_pool_form import new_pool_drawer
from web.fleet.topology.page import NOTE, topology_page, topology_pools
from web.fleet.topology.scope import TopologyScope
from web.shell.console_request import console_actor, sent

Made = TypeVar("Made", Region, Policy)


@require_POST
def create(request: HttpRequest) -> HttpResponse:
    """Create the pool and its dependencies in one transaction; 422 with the typed values if one is invalid."""
    actor = console_actor(request)
    try:
        with transaction.atomic():
            pool = _created(request, actor, sent(request, "why")[:200])
    except NotAllowedError as error:
        return topology_page(request, actor, topology_pools(actor), note=str(error), status=403)
    except InvalidFieldsError as error:
        drawer = new_pool_drawer({name: list(values) for name, values in request.POST.lists()}, error.problems)
        return topology_page(request, actor, topology_pools(actor), drawer=drawer, status=422)
    request.session[NOTE] = f"{pool.name} created. Connect or register its engines; they set its block size."
    return HttpResponseRedirect(TopologyScope.of(request.GET).address(settings=pool.slug))


def _created(request: HttpRequest, actor: Actor, why: str) -> Pool:
    return create_pool(
        sent(request, "slug"),
        sent(request, "name"),
        _chosen(request, "region", Region, lambda slug: create_region(slug, slug.capitalize(), actor=actor, why=why)),
        sent(request, "served_model"),
        _chosen(
            request, "policy", Policy, lambda slug: create_live_policy(slug, slug.capitalize(), actor=actor, why=why)
        ),
        actor=actor,
        why=why,
        key_source=sent(request, "key_source"),
    )


def _chosen(request: HttpRequest, field: str, model: type[Made], create: Callable[[str], Made]) -> Made:
    """Return the selected object, or a new one with the typed name; add problems to the field."""
    slug, new = sent(request, field), sent(request, f"new_{field}")
    if not slug:
        try:
            return create(new)
        except InvalidFieldsError as error:
            raise problem(f"new_{field}", error.problems[0].message) from None
    existing = model._default_manager.filter(slug=slug).first()
    if existing is None:
        raise problem(field, f"Choose a {field}.")
    return existing
