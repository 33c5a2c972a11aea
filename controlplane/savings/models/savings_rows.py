"""The ledger of savings. Names are those of that day, so that rows outlive their objects."""

from __future__ import annotations

import msgspec
from django.db import models
from typing_extensions import override

from planning.savings.day_savings import HoldbackCheck
from routing.values.prepared_struct import prepared

JOB = "savings"
"""The job that replays days, whose shard is the row of the pool."""


class SavingsState(models.TextChoices):
    """What is known of a day."""

    REPLAYED = "replayed", "Replayed"
    NOT_RECORDED = "not_recorded", "Not recorded"
    NOT_REPLAYED = "not_replayed", "Not replayed"
    TOO_FEW = "too_few", "Too little traffic"
    CUT_SHORT = "cut_short", "CPU budget too small"


class SavingsDay(models.Model):
    """One pool on one UTC day. Shares are 0..1; figures are empty unless the day was replayed."""

    day = models.DateField()
    pool = models.CharField(max_length=64)
    state = models.CharField(max_length=16, choices=SavingsState.choices)
    requests = models.BigIntegerField(default=0)
    """Recorded requests."""
    hours = models.FloatField(default=0.0)
    """Time that the replayed windows represent."""
    windows = models.PositiveSmallIntegerField(default=0)
    versions = models.JSONField(default=list)
    """Numbers of the live policy's versions."""
    recorded_late = models.FloatField(null=True, blank=True)
    """Share of the windows' requests that missed their objective."""
    replayed_late = models.FloatField(null=True, blank=True)
    """The same in the replay under the live policy."""
    price_per_h = models.FloatField(null=True, blank=True)
    """Mean price of an engine hour on that day, in dollars; empty: engines had no price."""
    holdback = models.JSONField(default=dict)
    """planning.savings.day_savings.HoldbackCheck as JSON; empty: no comparison."""
    cpu_s = models.FloatField(default=0.0)
    computed_at = models.DateTimeField()

    class Meta:
        constraints = (models.UniqueConstraint(fields=("day", "pool"), name="savings_once_per_day"),)

    @override
    def __str__(self) -> str:
        return f"{self.pool} on {self.day}: {self.state}"

    @property
    def compared(self) -> HoldbackCheck | None:
        """Return the comparison with the holdback; None without one."""
        return msgspec.convert(self.holdback, prepared(HoldbackCheck)) if self.holdback else None


class Saving(models.Model):
    """Savings of one day against one alternative, with 90 % ranges. Above 0: the live policy needed less."""

    of_day = models.ForeignKey(SavingsDay, on_delete=models.CASCADE, related_name="savings")
    alternative = models.CharField(max_length=64)
    """A rule of simulator.baselines, or an earlier version such as v7."""
    tenant = models.CharField(max_length=64, blank=True)
    """Empty: the whole pool."""
    late = models.FloatField()
    """Late answers avoided."""
    late_low = models.FloatField()
    late_high = models.FloatField()
    engine_h = models.FloatField()
    """Engine hours saved."""
    engine_h_low = models.FloatField()
    engine_h_high = models.FloatField()
    capped = models.BooleanField(default=False)
    """Whether the engine hours are a lower bound."""

    class Meta:
        constraints = (models.UniqueConstraint(fields=("of_day", "alternative", "tenant"), name="saving_once_per_day"),)

    @override
    def __str__(self) -> str:
        return f"{self.of_day} against {self.alternative}"
