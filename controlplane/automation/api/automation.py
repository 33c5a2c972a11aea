"""`/api/v1/pools/…/automation` and what belongs to it: switches, advice, plans and orders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.automation import engine_orders
from controlplane.automation import switches as steering
from controlplane.automation.api.automation_shape import Following, OrderShape, Override, PlanShape, PoolAutomation
from controlplane.automation.models.engine_order import EngineOrder, OrderKind, OrderState
from controlplane.automation.models.plan_record import PlanRecord
from controlplane.automation.observation import fleet_observation
from controlplane.automation.plan_advice import follow_advice
from controlplane.automation.reading import DOCUMENTS, pool_standing
from controlplane.fleet.models.pool import Pool
from controlplane.fleet.visibility import visible_pools
from controlplane.platform.api.base import ApiView, by_method, taken_why
from controlplane.platform.api.filters import exact, moment, one_of, truth
from controlplane.platform.api.listing import Listing
from controlplane.platform.api.strict_fields import Change


class _OfPool(ApiView):
    noun = "pools"

    def pool(self, slug: str) -> Pool:
        """Return the pool, if the actor may see it."""
        found: Pool = visible_pools(self.actor).select_related("policy__live_version", "steering").get(slug=slug)
        return found


class OnePoolAutomation(_OfPool):
    """How one pool steers itself."""

    shape = PoolAutomation

    def get(self, request: Request, *, slug: str) -> Response:
        """Return switches, automations with their reasons, engines and open orders."""
        return self.show(pool_standing(self.pool(slug), fleet_observation(), timezone.now()))


class _Switch(_OfPool):
    shape = PoolAutomation
    bodies = by_method(POST=Change)

    def turn(self, slug: str, verb: Callable[..., Any]) -> Response:
        """Carry out a verb of controlplane.automation.switches and answer with how the pool then stands."""
        pool, body = self.pool(slug), self.body()
        why = taken_why(body)
        verb(pool, actor=self.actor, why=why, **body)
        return self.show(pool_standing(self.pool(slug), fleet_observation(), timezone.now()))


class PoolFreeze(_Switch):
    """The end of all automation, for now."""

    def post(self, request: Request, *, slug: str) -> Response:
        """Let no automation of the pool do anything; orders that were not begun are taken back."""
        return self.turn(slug, steering.freeze)


class PoolUnfreeze(_Switch):
    """Automation again."""

    def post(self, request: Request, *, slug: str) -> Response:
        """Let the pool's automations go on as its policy says."""
        return self.turn(slug, steering.unfreeze)


class PoolOverride(_Switch):
    """An operator's hand at the wheel."""

    bodies = by_method(POST=Override)

    def post(self, request: Request, *, slug: str) -> Response:
        """Have so many engines until a moment, whatever the automations plan."""
        return self.turn(slug, steering.take_over)


class PoolOverrideEnd(_Switch):
    """The hand off the wheel."""

    def post(self, request: Request, *, slug: str) -> Response:
        """End an override before its time."""
        return self.turn(slug, steering.give_back)


class PoolAdvice(_Switch):
    """A person's word for what an automation only advises."""

    bodies = by_method(POST=Following)

    def post(self, request: Request, *, slug: str) -> Response:
        """Order what the automation's last plan advises, once; 409 where it advises something else by now."""
        pool, body = self.pool(slug), self.body()
        why = taken_why(body)
        follow_advice(pool, body["job"], body["advice"], actor=self.actor, at=timezone.now(), why=why)
        return self.show(pool_standing(self.pool(slug), fleet_observation(), timezone.now()))


class PoolPlans(_OfPool):
    """What the automations planned."""

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
        """List the plans that were kept, the newest first."""
        return self.show_page(PlanRecord.objects.filter(pool=self.pool(slug).slug))


class PoolOrders(_OfPool):
    """What actuators were asked for."""

    shape = OrderShape
    listing = Listing(
        {"ordered_at": ("ordered_at", "pk")},
        "-ordered_at",
        {
            "kind": one_of("kind", OrderKind.values, "Kind of action."),
            "state": one_of("state", OrderState.values, "State of the action."),
        },
    )

    def get(self, request: Request, *, slug: str) -> Response:
        """List orders, the newest first."""
        return self.show_page(EngineOrder.objects.filter(pool=self.pool(slug)).select_related("pool"))


class _OrderAnswer(ApiView):
    noun = "pools"
    shape = OrderShape
    bodies = by_method(POST=Change)

    def answer(self, key: str, verb: Callable[..., EngineOrder]) -> Response:
        """Carry out a verb on an order of a pool that the actor may see."""
        orders = EngineOrder.objects.filter(pool__in=visible_pools(self.actor)).select_related("pool")
        found, body = orders.get(key=key), self.body()
        return self.show(verb(found, actor=self.actor, why=taken_why(body)))


class OrderConfirmation(_OrderAnswer):
    """An order that a person carried out."""

    def post(self, request: Request, *, key: str) -> Response:
        """Say that it is done; only for pools whose actuator is a person."""
        return self.answer(key, engine_orders.confirm)


class OrderWithdrawal(_OrderAnswer):
    """An order that is not wanted any more."""

    def post(self, request: Request, *, key: str) -> Response:
        """Take it back; an engine that drains for it takes work again."""
        return self.answer(key, engine_orders.withdraw)
