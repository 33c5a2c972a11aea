"""The documents that govern a pool, and the current modes of its automations."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import msgspec

from controlplane.automation.models.pool_automation import PoolAutomation
from controlplane.fleet.models.pool import Pool, PoolMode
from controlplane.policies.upgrade import automation_of, live_routing_of
from planning.documents.automation_document import AutomationPolicy
from routing.policy.policy_document import RoutingPolicy
from routing.registry import STAGES
from routing.values.prepared_struct import prepared

FROZEN, OVERRIDE = "frozen", "override"


@dataclass(frozen=True, slots=True)
class PoolPolicy:
    """The live documents of a pool."""

    routing: RoutingPolicy
    automation: AutomationPolicy

    @property
    def rings(self) -> tuple[int, int]:
        """Return the placement's number of hash rings and virtual nodes; (0, 100) for a placement without rings."""
        stage = self.routing.placement
        rule = msgspec.convert(stage.params, prepared(STAGES["placement"][stage.name]))
        nodes = getattr(rule, "virtual_nodes", None)
        return (int(getattr(rule, "d", 1)), int(nodes)) if nodes else (0, 100)


def pool_policy(pool: Pool) -> PoolPolicy:
    """Return the documents of the pool's live version, or the built-in defaults if no version is live."""
    live = pool.policy.live_version
    if live is None:
        return PoolPolicy(RoutingPolicy(), AutomationPolicy())
    return PoolPolicy(live_routing_of(live), automation_of(live))


def pool_automation_of(pool: Pool) -> PoolAutomation:
    """Return the pool's switches. A pool without stored switches is unrestricted."""
    return getattr(pool, "automation", None) or PoolAutomation(pool=pool)


def mode_in_force(pool: Pool, mode: str) -> str:
    """Return the document's mode, or FROZEN if an operator froze the pool or the pool only observes."""
    return FROZEN if pool_automation_of(pool).frozen or pool.mode == PoolMode.OBSERVE else mode


def override_engines(pool: Pool, now: datetime) -> int | None:
    """Return the number of engines that an operator's override requests now; None: no override."""
    switches = pool_automation_of(pool)
    return switches.override_engines if _lasts(switches, now) else None


def override_prefill(pool: Pool, now: datetime) -> int | None:
    """Return the number of prefill engines that an operator's override requests now; None: no override."""
    switches = pool_automation_of(pool)
    return switches.override_prefill if _lasts(switches, now) else None


def _lasts(switches: PoolAutomation, now: datetime) -> bool:
    return switches.override_until is not None and switches.override_until > now
