"""The pool drawer of the Topology page: a pool's settings, and the form in which an admin changes the manual ones."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from django.http import HttpRequest

from controlplane.fleet.models.pool import Pool, PoolMode
from controlplane.platform.actor import Actor
from controlplane.platform.field_problems import FieldProblem
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.role import Role
from controlplane.platform.roles import may
from web.fleet.topology.drawer import changes_of
from web.fleet.topology.form import MAX_WHY
from web.fleet.topology.words import alone_words, owner_words
from web.live.feed import fleet_feed
from web.shell.form_field import whole_number

NAME, LIMIT, WEIGHT, ISOLATED, PRODUCTION = "name", "max_prompt_tokens", "weight", "isolated", "production"
NETWORKS, KEY, BLOCKS = "engine_networks", "engine_api_key_env", "block_tokens"
DONE_WORDS = {"pool.create": "created it", "pool.change": "changed it"}


def pool_drawer(
    pool: Pool,
    actor: Actor,
    *,
    typed: dict[str, Any] | None = None,
    problems: Sequence[FieldProblem] = (),
    observe_problem: str = "",
) -> dict[str, Any]:
    """Return the drawer's content for one pool; `typed` is a submitted form that was rejected with `problems`.

    `observe_problem` is why the switch to observing was rejected; its dialog stays open.
    """
    stored = {
        NAME: pool.name,
        LIMIT: str(pool.max_prompt_tokens),
        WEIGHT: str(pool.weight),
        NETWORKS: pool.engine_networks,
        KEY: pool.engine_api_key_env,
        BLOCKS: str(pool.block_tokens),
        ISOLATED: pool.isolated,
        PRODUCTION: pool.production,
        "why": "",
    }
    sample = fleet_feed().latest
    live = [item for item in sample.pools if item.pool_id == pool.slug] if sample is not None else []
    return {
        "kind": "pool",
        "owners": [words for item in live for words in owner_words(item)],
        "alone": [words for item in live for words in alone_words(item)],
        "pool": pool,
        "engine": None,
        "observes": pool.mode == PoolMode.OBSERVE,
        "observe_problem": observe_problem,
        "may_change": may(actor, Role.ADMIN),
        "values": typed or stored,
        "errors": {problem.path: problem.message for problem in problems},
        "history": _history(pool, time.time()),
    }


def shown_pool(slug: str, pools: Sequence[Pool]) -> Pool | None:
    """Return the pool if the person can see it."""
    return next((pool for pool in pools if pool.slug == slug), None)


def wanted(request: HttpRequest) -> tuple[dict[str, Any], dict[str, Any], list[FieldProblem]]:
    """Return the typed values, the requested changes, and the invalid values."""
    typed = {
        NAME: request.POST.get(NAME, "").strip()[:120],
        LIMIT: request.POST.get(LIMIT, "").strip()[:12],
        ISOLATED: bool(request.POST.get(ISOLATED)),
        PRODUCTION: bool(request.POST.get(PRODUCTION)),
        "why": request.POST.get("why", "").strip()[:MAX_WHY],
    }
    typed |= {name: request.POST[name].strip()[:500] for name in (NETWORKS, KEY) if name in request.POST}
    typed |= {name: request.POST[name].strip()[:5] for name in (WEIGHT, BLOCKS) if name in request.POST}
    numbers = {name: whole_number(name, typed[name], []) for name in (LIMIT, WEIGHT, BLOCKS) if name in typed}
    problems = [FieldProblem(name, "Enter a whole number.") for name, number in numbers.items() if number is None]
    return typed, {**{name: value for name, value in typed.items() if name != "why"}, **numbers}, problems


def _history(pool: Pool, now: float) -> list[dict[str, str]]:
    events = AuditEvent.objects.filter(object_kind="pool", object_id=pool.slug, verb__in=list(DONE_WORDS))
    return changes_of(events, DONE_WORDS, now)
