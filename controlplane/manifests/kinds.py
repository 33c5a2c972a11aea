"""The table of the kinds of objects in files."""

from __future__ import annotations

from typing import Any

from django.db import models
from typing_extensions import override

from controlplane.access.resources import GROUP_GRANTS, KEYS, TENANTS
from controlplane.fleet.engine_lifecycle import EngineNotEmptyError, set_desired_state
from controlplane.fleet.models.engine import DesiredState
from controlplane.fleet.resources import ENGINES, POOLS, REGIONS, SERVICES
from controlplane.manifests.kind import ChangeResult, Kind
from controlplane.manifests.policy_kind import PolicyKind
from controlplane.manifests.three_way import Values
from controlplane.notifications.changing import CHANNELS, ROUTES, SILENCES
from controlplane.objectives.objective import OBJECTIVES
from controlplane.platform.actor import Actor
from controlplane.platform.environment import PROGRAM
from controlplane.platform.field_problems import problem
from controlplane.policies.resources import POLICIES
from controlplane.usage.budgets import BUDGETS, PRICES


class EngineKind(Kind):
    """Engines, which drain before they are deleted."""

    @override
    def delete(self, thing: Any, *, actor: Actor, why: str) -> ChangeResult:
        """Drain a serving engine. Delete one that is already empty."""
        if thing.desired_state == DesiredState.READY:
            set_desired_state(thing, DesiredState.DRAINING, actor=actor, expected=thing.revision, why=why)
            return ChangeResult("drains; apply again to delete it when it is empty", unfinished=True)
        try:
            return super().delete(thing, actor=actor, why=why)
        except EngineNotEmptyError as error:
            return ChangeResult(str(error), unfinished=True)


class KeyKind(Kind):
    """API keys that are not revoked. Files hold no credentials, so they change keys and create none."""

    @override
    def rows(self, actor: Actor) -> models.QuerySet[Any]:
        """Return the keys that are not revoked."""
        return super().rows(actor).filter(revoked_at=None)

    @override
    def create(self, wanted: Values, *, actor: Actor, why: str) -> tuple[Any, ChangeResult]:
        """Raise InvalidFieldsError: the text of a new key must reach a person or a secret store, not a log."""
        name = f"--tenant {wanted['tenant',]} --name {wanted['name',]!r}"
        raise problem(
            "", f"There is no such key, and files create none. Run {PROGRAM} create_api_key {name}, then apply again."
        )


KINDS = (
    Kind("Region", REGIONS),
    PolicyKind("Policy", POLICIES),
    Kind("Tenant", TENANTS),
    Kind("Pool", POOLS),
    EngineKind("Engine", ENGINES, {"pool": "pool", "name": "name"}),
    Kind("Service", SERVICES),
    Kind("GroupGrant", GROUP_GRANTS, {"group": "group", "pool": "pool"}),
    KeyKind("ApiKey", KEYS, {"tenant": "tenant", "name": "name"}),
    Kind("Price", PRICES),
    Kind("Budget", BUDGETS),
    Kind("Objective", OBJECTIVES),
    Kind("NotificationChannel", CHANNELS),
    Kind("NotificationRoute", ROUTES),
    Kind("Silence", SILENCES),
)
"""In the order in which they are created. They are deleted in the opposite order."""
KIND_BY_NAME = {kind.name: kind for kind in KINDS}
