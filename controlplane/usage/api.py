"""`/api/v1/usage`, `/api/v1/budgets`, and `/api/v1/prices`."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.platform.api.listing import exact, one_of
from controlplane.platform.api.resource_bodies import ResourceShape, object_views
from controlplane.platform.api.views import ApiView, by_method
from controlplane.platform.field_problems import problem
from controlplane.usage.budgets import BUDGETS, PRICES
from controlplane.usage.models.budget import Budget, BudgetMode, ModelPrice
from controlplane.usage.summary import GROUPS, NAMED, UsageQuery, budget_uses, month_query, sums

USUAL_DAYS = 30
MAX_DAYS = 3660


class BudgetUseShape(serializers.Serializer):
    """Use of a budget in its current window. Amounts in its unit."""

    spent = serializers.FloatField()
    overshoot = serializers.FloatField(help_text="Spent beyond the amount, by requests in flight.")
    rejected = serializers.IntegerField()
    would_reject = serializers.IntegerField()
    resets_at = serializers.DateTimeField()


class BudgetShape(ResourceShape):
    """A limit on what a tenant or one of its keys uses per UTC minute, day, or month."""

    use = serializers.SerializerMethodField()

    class Meta:
        model = Budget

    @extend_schema_field(BudgetUseShape)
    def get_use(self, budget: Budget) -> Any:
        """Return its use in the current window."""
        return BudgetUseShape(budget_uses([budget], timezone.now())[0]).data


class PriceShape(ResourceShape):
    """The list price of a served model."""

    class Meta:
        model = ModelPrice


BudgetsView, OneBudget = object_views(
    BUDGETS,
    "budget",
    ("tenant", exact("tenant__slug", "Slug of the tenant.")),
    ("mode", one_of("mode", BudgetMode.values, "What happens when it is used up.")),
    shape=BudgetShape,
)
PricesView, OnePrice = object_views(PRICES, "price", ("model", exact("model", "Served model.")), shape=PriceShape)


class UsageSumShape(serializers.Serializer):
    """Usage of one group. Names that do not group are absent."""

    day = serializers.DateField(required=False)
    tenant = serializers.CharField(required=False)
    key = serializers.CharField(required=False, help_text="Id of the API key.")
    model = serializers.CharField(required=False)
    pool = serializers.CharField(required=False, help_text="Empty: an external provider, or no pool was chosen.")
    requests = serializers.IntegerField()
    late = serializers.IntegerField(help_text="Answers that missed their objective; failed and rejected not included.")
    failed = serializers.IntegerField()
    rejected = serializers.IntegerField()
    over_budget = serializers.IntegerField(help_text="Those of rejected that a hard budget rejected.")
    would_reject = serializers.IntegerField(help_text="Requests that a shadow budget would have rejected.")
    interrupted = serializers.IntegerField(help_text="Answers that the end of a gateway process cut off.")
    client_ended = serializers.IntegerField(help_text="Left by their client, or rejected because of their content.")
    unreported = serializers.IntegerField(help_text="Decisions whose end was not reported.")
    prompt_tokens = serializers.IntegerField()
    cached_tokens = serializers.IntegerField()
    output_tokens = serializers.IntegerField()
    dollars = serializers.FloatField(help_text="By the price list at the time of each request.")


class UsageShape(serializers.Serializer):
    """Usage in a time span, groups with the most tokens first."""

    since = serializers.DateField()
    until = serializers.DateField()
    results = UsageSumShape(many=True)


class UsageView(ApiView):
    """Usage of the ledger."""

    noun = "usage"
    shape = UsageShape
    says = by_method(GET="Return usage in UTC days, by tenant, key, model, pool, or day.")
    parameters = (
        OpenApiParameter("group_by", description=f"Comma-separated: {', '.join(GROUPS)}. Default: tenant."),
        OpenApiParameter("since", description=f"First day. Default: {USUAL_DAYS} days ending with until."),
        OpenApiParameter("until", description="Last day. Default: today."),
        OpenApiParameter("month", description="Instead of both, for example 2026-11."),
        *(OpenApiParameter(name, description=f"Only this {name}.") for name in NAMED),
    )

    def get(self, request: Request) -> Response:
        """Return the sums."""
        given = request.query_params
        groups = [name for name in given.get("group_by", "tenant").split(",") if name]
        if unknown := [name for name in groups if name not in GROUPS]:
            raise problem("group_by", f"Unknown: {', '.join(unknown)}; use {', '.join(GROUPS)}.")
        query = _query({name: given[name] for name in given})
        results: list[dict[str, Any]] = sums(query.rows(self.actor), *dict.fromkeys(groups))
        return self.show({"since": query.since, "until": query.until, "results": results})


def _query(given: dict[str, str]) -> UsageQuery:
    """Return the query of these parameters. Raises InvalidFieldsError."""
    names = {name: given.get(name, "") for name in NAMED}
    if bad := [name for name, text in names.items() if "\x00" in text]:
        raise problem(bad[0], "Must be a name.")
    try:
        if given.get("month"):
            return month_query(given["month"], names)
        until = date.fromisoformat(given["until"]) if given.get("until") else timezone.now().date()
        since = date.fromisoformat(given["since"]) if given.get("since") else until - timedelta(days=USUAL_DAYS - 1)
    except (ValueError, OverflowError):
        raise problem("since", "Write days as 2026-11-28, and a month as 2026-11.") from None
    if not 0 <= (until - since).days < MAX_DAYS:
        raise problem("since", f"Must be before until, by at most {MAX_DAYS} days.")
    return UsageQuery(since, until, names)
