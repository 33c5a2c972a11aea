"""`/api/v1/pools/…/automation` and its parts: switches, advice, plans, and actions."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response
from typing_extensions import override

from controlplane.automation import engine_actions, switches
from controlplane.automation.api.automation_shape import (
    ActionShape,
    Following,
    Override,
    PlanShape,
    PoolAutomationShape,
)
from controlplane.automation.models.engine_action import ActionKind, ActionState, EngineAction
from controlplane.automation.models.plan_record import PlanRecord
from controlplane.automation.observation import fleet_observation
from controlplane.automation.plan_advice import follow_advice
from controlplane.automation.reading import DOCUMENTS, PoolAutomationState, pool_state
from controlplane.fleet.models.pool import Pool
from controlplane.fleet.visibility import visible_pools
from controlplane.platform.actor import Actor
from controlplane.platform.api.listing import Listing, exact, moment, one_of, truth
from controlplane.platform.api.strict_fields import ChangeBody
from controlplane.platform.api.views import ApiView, ObjectView, Verb, by_method


def _pools(actor: Actor) -> QuerySet[Pool]:
    return visible_pools(actor).select_related("policy__live_version", "automation")


class OnePoolAutomation(ObjectView):
    """The automation state of one pool."""

    noun = "pools"
    shape = PoolAutomationShape
    rows = staticmethod(_pools)
    says = by_method(GET="Return switches, automations with their reasons, engines and open actions.")

    @override
    def thing(self, **names: Any) -> PoolAutomationState:
        """Return the pool's automation state."""
        return pool_state(super().thing(**names), fleet_observation(), timezone.now())


class _Switch(Verb):
    """Base view of an action in controlplane.automation.switches."""

    noun = "pools"
    shape = PoolAutomationShape
    rows = staticmethod(_pools)
    bodies = by_method(POST=ChangeBody)

    @override
    def carry_out(self, thing: Pool, **asked: Any) -> PoolAutomationState:
        """Change the switches, and return the pool's new state."""
        self.verb(thing, **asked)
        return pool_state(self.thing(slug=thing.slug), fleet_observation(), timezone.now())


class PoolFreeze(_Switch):
    """Stop all automation of the pool, and withdraw actions that have not begun."""

    verb = staticmethod(switches.freeze)


class PoolUnfreeze(_Switch):
    """Resume the pool's automations as configured in its policy."""

    verb = staticmethod(switches.unfreeze)


class PoolOverride(_Switch):
    """Fix the pool's number of engines until a given time, regardless of the automations' plans."""

    verb = staticmethod(switches.take_over)
    bodies = by_method(POST=Override)


class PoolOverrideEnd(_Switch):
    """End an override early."""

    verb = staticmethod(switches.give_back)


class PoolAdvice(_Switch):
    """Carry out the automation's last advice once. Responds with 409 if the advice has changed."""

    verb = staticmethod(follow_advice)
    bodies = by_method(POST=Following)


class PoolPlans(ApiView):
    """Plans of the pool's automations."""

    noun = "pools"
    shape = PlanShape
    listing = Listing(
        {"at": ("at", "pk")},
        "-at",
        {
            "job": one_of("job", DOCUMENTS, "Name of the automation."),
            "mode": exact("mode", "Mode: act, advise, frozen or override."),
            "changes": truth("changes", "Whether the plan proposed a change."),
            "since": moment("at__gte", "Plans of this time or later."),
            "until": moment("at__lt", "Plans before this time."),
        },
    )

    def get(self, request: Request, *, slug: str) -> Response:
        """List the stored plans, newest first."""
        return self.show_page(PlanRecord.objects.filter(pool=_pools(self.actor).get(slug=slug).slug))


def _orders(actor: Actor) -> QuerySet[EngineAction]:
    return EngineAction.objects.filter(pool__in=visible_pools(actor)).select_related("pool")


class PoolActions(ApiView):
    """Actions to actuators."""

    noun = "pools"
    shape = ActionShape
    listing = Listing(
        {"requested_at": ("requested_at", "pk")},
        "-requested_at",
        {
            "kind": one_of("kind", ActionKind.values, "Kind of action."),
            "state": one_of("state", ActionState.values, "State of the action."),
        },
    )

    def get(self, request: Request, *, slug: str) -> Response:
        """List actions, newest first."""
        return self.show_page(_orders(self.actor).filter(pool=_pools(self.actor).get(slug=slug)))


class _ActionAnswer(Verb):
    noun = "pools"
    shape = ActionShape
    rows = staticmethod(_orders)
    bodies = by_method(POST=ChangeBody)


class ActionConfirmation(_ActionAnswer):
    """Confirm that the action is done. Only for pools with the manual actuator."""

    verb = staticmethod(engine_actions.confirm)


class ActionWithdrawal(_ActionAnswer):
    """Withdraw the action. An engine that it drains accepts new work again."""

    verb = staticmethod(engine_actions.withdraw)
