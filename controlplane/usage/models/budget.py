"""Budgets of keys and tenants, list prices of models, and what is spent and granted of each budget."""

from __future__ import annotations

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from typing_extensions import override

from controlplane.platform.models.tenant import Tenant
from controlplane.platform.resource.declared_field import FieldAccess, declared
from controlplane.platform.revisions import RevisedModel
from gateway.usage.usage_messages import DAY, DOLLARS, HARD, MINUTE, MONTH, NANO, SHADOW, SOFT, TOKENS

_PRICE = (MinValueValidator(0), MaxValueValidator(100_000))


class BudgetUnit(models.TextChoices):
    """What a budget limits."""

    TOKENS = TOKENS, "Tokens, prompt and output"
    DOLLARS = DOLLARS, "Dollars, by the price list"


class BudgetWindow(models.TextChoices):
    """The UTC time span after which a budget starts again."""

    MINUTE = MINUTE, "Minute"
    DAY = DAY, "Day"
    MONTH = MONTH, "Month"


class BudgetMode(models.TextChoices):
    """What happens when a budget is used up."""

    SHADOW = SHADOW, "Shadow: count what would be rejected"
    SOFT = SOFT, "Soft: send a notice"
    HARD = HARD, "Hard: reject with 429"


class Budget(RevisedModel):
    """One budget. `slug` is its id in snapshots, errors, and metrics, and never changes."""

    in_snapshot = True

    slug = declared(
        models.SlugField(max_length=64, unique=True),
        "Id",
        "Named in errors of rejected requests. Letters, digits, - and _; it never changes.",
        access=FieldAccess.FIXED,
        example="acme-monthly",
    )
    tenant = declared(
        models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="budgets"),
        "Tenant",
        "Slug of the tenant.",
        access=FieldAccess.FIXED,
    )
    key_id = declared(
        models.CharField(max_length=64, blank=True, default=""),
        "Key id",
        "Id of one of the tenant's keys; empty: all its keys together.",
        access=FieldAccess.FIXED,
    )
    window = declared(
        models.CharField(max_length=8, choices=BudgetWindow.choices, default=BudgetWindow.MONTH),
        "Window",
        "UTC time span after which the budget starts again.",
        access=FieldAccess.FIXED,
    )
    unit = declared(
        models.CharField(max_length=8, choices=BudgetUnit.choices, default=BudgetUnit.TOKENS),
        "Unit",
        "Dollars need list prices; models without one cost nothing.",
        access=FieldAccess.FIXED,
    )
    amount = declared(
        models.FloatField(validators=[MinValueValidator(0.000_001), MaxValueValidator(1e12)]),
        "Amount",
        "Tokens or dollars per window.",
        example="1000000",
    )
    mode = declared(
        models.CharField(max_length=8, choices=BudgetMode.choices, default=BudgetMode.SHADOW),
        "Mode",
        "What happens when it is used up. Begin with shadow.",
    )

    class Meta:
        ordering = ("tenant__slug", "slug")

    @property
    def units(self) -> int:
        """Return the amount in the ledger's units: tokens or nano-dollars."""
        return max(1, round(self.amount * (NANO if self.unit == BudgetUnit.DOLLARS else 1)))


class BudgetSpending(models.Model):
    """What is spent and granted of a budget.

    `windows` maps the start of a window (unix milliseconds) to {"spent": units, "by": {journal: units}, "held":
    {journal: [[state version, units left], …]}, "rejected": requests, "would_reject": requests}.
    """

    budget = models.OneToOneField(Budget, on_delete=models.CASCADE, related_name="spending")
    windows = models.JSONField(default=dict)
    noticed_at = models.DateTimeField(null=True, blank=True)
    """When its last notice was recorded."""
    noticed_window = models.BigIntegerField(default=0)

    @override
    def __str__(self) -> str:
        return f"spending of {self.budget}"


class ModelPrice(RevisedModel):
    """The list price of one served model, for chargeback and budgets in dollars."""

    in_snapshot = True

    slug = declared(
        models.SlugField(max_length=64, unique=True),
        "Id",
        "Letters, digits, - and _; it never changes.",
        access=FieldAccess.FIXED,
    )
    model = declared(
        models.CharField(max_length=200, unique=True), "Served model", "As engines name it.", access=FieldAccess.FIXED
    )
    prompt = declared(models.FloatField(default=0.0, validators=_PRICE), "Prompt price", unit="$/M tokens")
    cached = declared(
        models.FloatField(null=True, blank=True, validators=_PRICE),
        "Cached prompt price",
        "Of prompt tokens that come from a cache. Empty: the prompt price.",
        unit="$/M tokens",
    )
    output = declared(models.FloatField(default=0.0, validators=_PRICE), "Output price", unit="$/M tokens")

    class Meta:
        ordering = ("model",)

    @override
    def __str__(self) -> str:
        return self.model
