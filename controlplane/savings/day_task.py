"""Reads what the replay of a pool's day needs from the database."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta

from django.conf import settings
from django.db.models import Q

from controlplane.fleet.models.pool import Pool
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.request_log.decision_search import tenants_by_digest
from controlplane.savings.replay_child import DayTask
from controlplane.trials.models.holdback import HoldbackDay
from controlplane.trials.whatif.conditions import ENGINE_MODELS
from controlplane.trials.whatif.engine_candidate import (
    as_it_would_route,
    engine_candidates,
    pool_engines,
)
from controlplane.trials.whatif.reading import CannotRunError, routing_of
from routing.policy.policy_document import Stage
from simulator.savings.day_replay import DayQuestion, EngineGuess

EARLIER = 2
"""Number of earlier versions that a day is compared with."""
_LIVE = 20
"""Number of versions that may have been live on the day."""


def day_begin(day: date, later: int = 0) -> datetime:
    """Return the start of the UTC day that is `later` days after this one."""
    return datetime.combine(day + timedelta(days=later), time(), UTC)


def day_task(pool: Pool, day: date) -> DayTask:
    """Return the task. Raises CannotRunError."""
    live = pool.policy.live_version
    if live is None:
        raise CannotRunError("No version of the pool's policy is live.")
    known = pool_engines(pool)
    guesses = engine_candidates(routing_of(live), known.learned, known.kv_tokens, ENGINE_MODELS)
    published = PolicyVersion.objects.filter(Q(published_at__isnull=False) | Q(pk=live.pk), policy=pool.policy)
    policies = {
        item.number: as_it_would_route(routing_of(item), known.learned)
        for item in published.order_by("-number")[:_LIVE]
    }
    earlier = [number for number in policies if number < live.number][:EARLIER]
    # The rule with which most sessions were held back.
    holdback = HoldbackDay.objects.filter(pool=pool.slug, day=day).order_by("-control").first()
    return DayTask(
        pool=pool.slug,
        begin=day_begin(day).timestamp(),
        tenants=tenants_by_digest(),
        engines=max(1, known.ready),
        question=DayQuestion(
            live=policies,
            earlier={f"v{number}": policies[number] for number in earlier},
            engines=tuple(EngineGuess(item.engine_model, item.profile) for item in guesses),
            kv_nodes=known.kv_nodes,
            holdback=Stage(name=holdback.placement) if holdback else None,
            holdback_share=holdback.share if holdback else 0.0,
            budget_s=settings.SAVINGS_CPU_S,
        ),
    )
