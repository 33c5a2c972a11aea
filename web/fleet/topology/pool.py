"""The pool drawer of the Engines page: a pool's settings, and the form in which an admin changes the manual ones."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from django.http import QueryDict

from controlplane.fleet.models.pool import KeySource, Pool, PoolMode
from controlplane.platform.actor import Actor
from controlplane.platform.field_problems import FieldProblem
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.resource.declared_field import Fields, settable_fields
from controlplane.platform.role import Role
from controlplane.platform.roles import may
from web.fleet.topology.drawer import changes_of
from web.fleet.topology.form import WHY, problem_lines
from web.fleet.topology.words import alone_words, owner_words
from web.live.feed import fleet_feed
from web.shell.form_field import filled
from web.shell.resource_form import facts, form_fields

_ELSEWHERE = frozenset({"region", "served_model", "key_source", "policy", "mode", "actuator", "actuator_settings"})
"""Fields that this form does not change: they are chosen with the pool, or have pages and dialogs of their own."""
DONE_WORDS = {"pool.create": "created it", "pool.change": "changed it"}


def form_settings(pool: Pool) -> Fields:
    """Return the fields of the form. A pool has one of the two block sizes."""
    other_size = "block_bytes" if pool.key_source == KeySource.EXACT else "block_tokens"
    return {name: field for name, field in settable_fields(Pool).items() if name not in _ELSEWHERE | {other_size}}


def pool_drawer(
    pool: Pool,
    actor: Actor,
    *,
    posted: QueryDict | None = None,
    problems: Sequence[FieldProblem] = (),
    observe_problem: str = "",
) -> dict[str, Any]:
    """Return the drawer's content for one pool; `posted` is a submitted form that was rejected with `problems`.

    `observe_problem` is why the switch to observing was rejected; its dialog stays open.
    """
    settings = form_settings(pool)
    fields = filled([*form_fields(settings, pool), WHY], dict(posted.lists()) if posted else {}, problems)
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
        "facts": facts(settings, pool)[1:],
        "fields": fields,
        "problems": problem_lines(fields, problems),
        "history": _history(pool, time.time()),
    }


def shown_pool(slug: str, pools: Sequence[Pool]) -> Pool | None:
    """Return the pool if the person can see it."""
    return next((pool for pool in pools if pool.slug == slug), None)


def _history(pool: Pool, now: float) -> list[dict[str, str]]:
    events = AuditEvent.objects.filter(object_kind="pool", object_id=pool.slug, verb__in=list(DONE_WORDS))
    return changes_of(events, DONE_WORDS, now)
