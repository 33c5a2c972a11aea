"""`/api/v1/savings`."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.fleet.visibility import visible_pools
from controlplane.platform.api.strict_fields import ChangeBody, Text
from controlplane.platform.api.views import ApiView, by_method
from controlplane.platform.field_problems import problem
from controlplane.savings.reading import SavingsQuery, missing_days, totals
from controlplane.usage.summary import month_query


class RangedFigureShape(serializers.Serializer):
    """A figure with its 90 % range. Above 0: the live policy needed less."""

    mid = serializers.FloatField()
    low = serializers.FloatField()
    high = serializers.FloatField()


class SavingsTotalShape(serializers.Serializer):
    """Savings of a pool in a month against one alternative."""

    pool = serializers.CharField()
    alternative = serializers.CharField(help_text="Rule of another router, or an earlier version such as v7.")
    tenant = serializers.CharField(help_text="Empty: all tenants.")
    days = serializers.IntegerField(help_text="Replayed days.")
    unpriced_days = serializers.IntegerField(help_text="Those without a price of engines, which dollars lacks.")
    capped = serializers.BooleanField(help_text="Whether engine hours and dollars are lower bounds.")
    late = RangedFigureShape(help_text="Late answers avoided.")
    engine_h = RangedFigureShape(help_text="Engine hours saved at the same on-time share.")
    dollars = RangedFigureShape(allow_null=True, help_text="Their cost; null: no day has a price.")


class HoldbackCheckShape(serializers.Serializer):
    """Late share of the holdback minus that of the live policy, as replayed and as measured."""

    placement = serializers.CharField()
    replayed = RangedFigureShape()
    measured = serializers.FloatField()
    requests = serializers.IntegerField(help_text="Judged requests of the holdback.")
    covered = serializers.BooleanField()


class SavingsDayShape(serializers.Serializer):
    """One day of one pool."""

    day = serializers.DateField()
    pool = serializers.CharField()
    state = serializers.CharField(help_text="replayed, not_recorded, not_replayed, too_few, or cut_short.")
    requests = serializers.IntegerField(help_text="Recorded requests.")
    hours = serializers.FloatField(help_text="Time that the replayed windows represent.")
    recorded_late = serializers.FloatField(allow_null=True)
    replayed_late = serializers.FloatField(allow_null=True)
    price_per_h = serializers.FloatField(allow_null=True, help_text="Dollars per engine hour on that day.")
    holdback = HoldbackCheckShape(source="compared", allow_null=True)


class SavingsShape(serializers.Serializer):
    """Savings in a month."""

    since = serializers.DateField()
    until = serializers.DateField()
    results = SavingsTotalShape(many=True)
    days = SavingsDayShape(many=True)


class SavingsReplay(ChangeBody):
    """Body of POST /savings."""

    pool = Text(help_text="Slug of the pool.")
    day = serializers.DateField(help_text="UTC day.")


class ReplayShape(serializers.Serializer):
    """A replay that was started."""

    job = serializers.IntegerField(help_text="Id of its run in /api/v1/jobs.")


class SavingsView(ApiView):
    """The ledger of proved savings."""

    noun = "savings"
    shape = SavingsShape
    bodies = by_method(POST=SavingsReplay)
    answers = by_method(POST=(201, ReplayShape))
    says = by_method(
        GET="Return what live policies saved in a month, and its days.", POST="Replay a pool's day now; see the job."
    )
    parameters = (
        OpenApiParameter("month", required=True, description="For example 2026-11."),
        OpenApiParameter("pool", description="Only this pool."),
        OpenApiParameter("tenant", description="Only this tenant's part."),
    )

    def get(self, request: Request) -> Response:
        """Return the month."""
        given = {name: request.query_params.get(name, "") for name in ("month", "pool", "tenant")}
        if bad := [name for name, text in given.items() if "\x00" in text]:
            raise problem(bad[0], "Must be a name.")
        try:
            month = month_query(given["month"], {})
        except (ValueError, OverflowError):
            raise problem("month", "Write a month as 2026-11.") from None
        query = SavingsQuery(month.since, month.until, given["pool"], given["tenant"])
        stored = list(query.days(self.actor))
        days = sorted([*stored, *missing_days(query, stored)], key=lambda item: (item.day, item.pool))
        body: dict[str, Any] = {"results": totals(query.rows(self.actor)), "days": days}
        return self.show({"since": query.since, "until": query.until, **body})

    def post(self, request: Request) -> Response:
        """Start the replay. Responds with 409 while one of the pool runs."""
        body = self.body()
        pool = visible_pools(self.actor).filter(slug=body["pool"]).first()
        if pool is None:
            raise problem("pool", "No such pool.")
        # Here, because it imports the simulator.
        from controlplane.savings.job import start_replay

        run = start_replay(pool, body["day"], actor=self.actor, why=body.get("why", ""))
        return self.show({"job": run.pk}, 201, shape=ReplayShape)
