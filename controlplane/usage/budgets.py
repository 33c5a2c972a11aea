"""Creates, changes, and deletes budgets and list prices. Admins only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from controlplane.platform import recorded_change
from controlplane.platform.actor import Actor
from controlplane.platform.field_problems import check_names, problem
from controlplane.platform.models.api_key import ApiKey
from controlplane.platform.resource.declared_field import settable_fields
from controlplane.platform.resource.resource import Resource
from controlplane.platform.role import Role
from controlplane.platform.roles import require
from controlplane.usage.models.budget import Budget, ModelPrice
from gateway.contracts.snapshot import BudgetEntry, PriceEntry

Priced = TypeVar("Priced", Budget, ModelPrice)


def create_budget(*, actor: Actor, why: str = "", **fields: Any) -> Budget:
    """Store and publish a new budget. Raises NotAllowedError, InvalidFieldsError."""
    key_id, tenant = fields.get("key_id", ""), fields.get("tenant")
    if key_id and not ApiKey.objects.filter(key_id=key_id, tenant=tenant).exists():
        require(actor, Role.ADMIN)
        raise problem("key_id", "This tenant has no such key.")
    return _create(Budget, fields, "budget.create", actor, why)


def change_budget(
    budget: Budget, changes: Mapping[str, Any], *, actor: Actor, expected: int | None = None, why: str = ""
) -> Budget:
    """Change and publish a budget. Raises NotAllowedError, InvalidFieldsError, StaleRevisionError."""
    return _change(budget, changes, "budget.change", actor, expected, why)


def delete_budget(budget: Budget, *, actor: Actor, expected: int | None = None, why: str = "") -> None:
    """Delete a budget. Raises NotAllowedError, StaleRevisionError."""
    require(actor, Role.ADMIN)
    recorded_change.delete(budget, "budget.delete", actor=actor, expected=expected, why=why)


def create_price(*, actor: Actor, why: str = "", **fields: Any) -> ModelPrice:
    """Store and publish a list price. Raises NotAllowedError, InvalidFieldsError."""
    return _create(ModelPrice, fields, "price.create", actor, why)


def change_price(
    price: ModelPrice, changes: Mapping[str, Any], *, actor: Actor, expected: int | None = None, why: str = ""
) -> ModelPrice:
    """Change and publish a list price. It applies to later requests. Raises as `change_budget`."""
    return _change(price, changes, "price.change", actor, expected, why)


def delete_price(price: ModelPrice, *, actor: Actor, expected: int | None = None, why: str = "") -> None:
    """Delete a list price. Raises NotAllowedError, StaleRevisionError."""
    require(actor, Role.ADMIN)
    recorded_change.delete(price, "price.delete", actor=actor, expected=expected, why=why)


def _create(model: type[Priced], fields: Mapping[str, Any], verb: str, actor: Actor, why: str) -> Priced:
    require(actor, Role.ADMIN)
    check_names(fields, settable_fields(model, creating=True))
    return recorded_change.create(model(**fields), verb, actor=actor, why=why)


def _change(
    thing: Priced, changes: Mapping[str, Any], verb: str, actor: Actor, expected: int | None, why: str
) -> Priced:
    require(actor, Role.ADMIN)
    check_names(changes, settable_fields(type(thing)))
    return recorded_change.change(thing, changes, verb, actor=actor, expected=expected, why=why)


def budget_entries() -> tuple[BudgetEntry, ...]:
    """Return all budgets for the snapshot."""
    return tuple(
        BudgetEntry(
            budget_id=item.slug,
            key_id=item.key_id,
            tenant_id="" if item.key_id else item.tenant.slug,
            unit=item.unit,
            amount=item.units,
            window=item.window,
            mode=item.mode,
        )
        for item in Budget.objects.select_related("tenant")
    )


def price_entries() -> tuple[PriceEntry, ...]:
    """Return all list prices for the snapshot."""
    return tuple(
        PriceEntry(model=item.model, prompt=item.prompt, cached=item.cached, output=item.output)
        for item in ModelPrice.objects.all()
    )


BUDGETS = Resource(
    "budgets",
    Budget,
    lambda _actor: Budget.objects.select_related("tenant", "spending"),
    created=create_budget,
    changed=change_budget,
    deleted=delete_budget,
    changes_need=Role.ADMIN,
    whole_fleet=True,
)
PRICES = Resource(
    "prices",
    ModelPrice,
    lambda _actor: ModelPrice.objects.all(),
    created=create_price,
    changed=change_price,
    deleted=delete_price,
    changes_need=Role.ADMIN,
    whole_fleet=True,
)
