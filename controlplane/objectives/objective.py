"""The objective of a pool, or of all pools, and the services that change it. Admins only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models

from controlplane.fleet.models.pool import Pool
from controlplane.platform import recorded_change
from controlplane.platform.actor import Actor
from controlplane.platform.field_problems import check_names, problem
from controlplane.platform.resource.declared_field import FieldAccess, declared, settable_fields
from controlplane.platform.resource.resource import Resource
from controlplane.platform.revisions import RevisedModel
from controlplane.platform.role import Role
from controlplane.platform.roles import require
from planning.incidents.signs import ON_TIME_TARGET


class Objective(RevisedModel):
    """The target share of requests on time, over 30 days. Incidents open when it burns too fast."""

    slug = declared(
        models.SlugField(max_length=64, unique=True),
        "Id",
        "Letters, digits, - and _; it never changes.",
        access=FieldAccess.FIXED,
        example="chat-on-time",
    )
    pool = declared(
        models.CharField(max_length=64, blank=True, default="", unique=True),
        "Pool",
        "Id of the pool; empty: all pools without an objective of their own.",
        access=FieldAccess.FIXED,
    )
    target = declared(
        models.FloatField(default=100 * ON_TIME_TARGET, validators=[MinValueValidator(1.0), MaxValueValidator(99.99)]),
        "Target",
        "Share of requests on time. Late, failed, and rejected requests use up the error budget.",
        unit="%",
    )

    class Meta:
        ordering = ("slug",)


def create_objective(*, actor: Actor, why: str = "", **fields: Any) -> Objective:
    """Store a new objective. Raises NotAllowedError, InvalidFieldsError."""
    require(actor, Role.ADMIN)
    check_names(fields, settable_fields(Objective, creating=True))
    pool = fields.get("pool", "")
    if pool and not Pool.objects.filter(slug=pool).exists():
        raise problem("pool", f"There is no pool {pool}.")
    return recorded_change.create(Objective(**fields), "objective.create", actor=actor, why=why)


def change_objective(
    objective: Objective, changes: Mapping[str, Any], *, actor: Actor, expected: int | None = None, why: str = ""
) -> Objective:
    """Change an objective. Raises NotAllowedError, InvalidFieldsError, StaleRevisionError."""
    require(actor, Role.ADMIN)
    check_names(changes, settable_fields(Objective))
    return recorded_change.change(objective, changes, "objective.change", actor=actor, expected=expected, why=why)


def delete_objective(objective: Objective, *, actor: Actor, expected: int | None = None, why: str = "") -> None:
    """Delete an objective. Raises NotAllowedError, StaleRevisionError."""
    require(actor, Role.ADMIN)
    recorded_change.delete(objective, "objective.delete", actor=actor, expected=expected, why=why)


def targets() -> dict[str, float]:
    """Return the target share 0..1 by pool; "" has that of all other pools."""
    stored = {pool: target / 100 for pool, target in Objective.objects.values_list("pool", "target")}
    return {"": ON_TIME_TARGET} | stored


def target_of(pool: str) -> float:
    """Return the target share 0..1 of one pool."""
    known = targets()
    return known.get(pool, known[""])


OBJECTIVES = Resource(
    "objectives",
    Objective,
    lambda _actor: Objective.objects.all(),
    created=create_objective,
    changed=change_objective,
    deleted=delete_objective,
    changes_need=Role.ADMIN,
    whole_fleet=True,
)
