"""Reads what the replay of a pool's day needs from the database."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta

from django.conf import settings
from django.db.models import Q

from controlplane.fleet.learned_costs import fitted_of
from controlplane.fleet.models.engine import DesiredState, Engine
from controlplane.fleet.models.learned_cost import LearnedCost
from controlplane.fleet.models.pool import Pool
from controlplane.platform.bus import get_bus
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.request_log.decision_search import tenants_by_digest
from controlplane.savings.replay_child import DayTask
from controlplane.trials.models.holdback import HoldbackDay
from controlplane.trials.whatif.conditions import ENGINE_MODELS
from controlplane.trials.whatif.engine_candidate import (
    as_it_would_route,
    engine_candidates,
    reported_kv_tokens,
    stand_in_nodes,
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
    engines = list(Engine.objects.filter(pool=pool).order_by("engine_id"))
    learned = {cost.kind: fitted_of(cost) for cost in LearnedCost.objects.filter(pool=pool)}
    kv_tokens = reported_kv_tokens(get_bus(), [engine.engine_id for engine in engines])
    guesses = engine_candidates(routing_of(live), learned, kv_tokens, ENGINE_MODELS)
    published = PolicyVersion.objects.filter(Q(published_at__isnull=False) | Q(pk=live.pk), policy=pool.policy)
    policies = {
        item.number: as_it_would_route(routing_of(item), learned) for item in published.order_by("-number")[:_LIVE]
    }
    earlier = [number for number in policies if number < live.number][:EARLIER]
    # The rule with which most sessions were held back.
    holdback = HoldbackDay.objects.filter(pool=pool.slug, day=day).order_by("-control").first()
    return DayTask(
        pool=pool.slug,
        begin=day_begin(day).timestamp(),
        tenants=tenants_by_digest(),
        engines=max(1, sum(engine.desired_state == DesiredState.READY for engine in engines)),
        question=DayQuestion(
            live=policies,
            earlier={f"v{number}": policies[number] for number in earlier},
            engines=tuple(EngineGuess(item.engine_model, item.profile) for item in guesses),
            kv_nodes=stand_in_nodes(engines, pool.block_tokens) if pool.key_source == "exact" else None,
            holdback=Stage(name=holdback.placement) if holdback else None,
            holdback_share=holdback.share if holdback else 0.0,
            budget_s=settings.SAVINGS_CPU_S,
        ),
    )
