"""The ledger: sums of usage by UTC day and minute, the marks of journals, and engine hours."""

from __future__ import annotations

from django.db import models
from typing_extensions import override


class JournalMark(models.Model):
    """The highest entry of a gateway's journal that is in the ledger."""

    journal = models.CharField(max_length=64, primary_key=True)
    mark = models.BigIntegerField(default=0)
    state_version = models.BigIntegerField(default=0)
    """The version of the grants that its gateway enforces."""
    seen_at = models.DateTimeField()

    @override
    def __str__(self) -> str:
        return f"{self.journal} to {self.mark}"


class UsageDay(models.Model):
    """Usage of one key in one pool in one UTC day. Names are those of that time, so that rows outlive their objects."""

    day = models.DateField()
    tenant = models.CharField(max_length=64)
    key_id = models.CharField(max_length=64, blank=True)
    pool = models.CharField(max_length=64, blank=True)
    """Empty: an external provider, or no pool was chosen."""
    model = models.CharField(max_length=200, blank=True)
    requests = models.BigIntegerField(default=0)
    late = models.BigIntegerField(default=0)
    failed = models.BigIntegerField(default=0)
    rejected = models.BigIntegerField(default=0)
    over_budget = models.BigIntegerField(default=0)
    """Those of `rejected` that a hard budget rejected."""
    would_reject = models.BigIntegerField(default=0)
    """Requests that a shadow budget would have rejected."""
    interrupted = models.BigIntegerField(default=0)
    client_ended = models.BigIntegerField(default=0)
    """Requests that their client left, or that an engine rejected because of their content."""
    unreported = models.BigIntegerField(default=0)
    prompt_tokens = models.BigIntegerField(default=0)
    cached_tokens = models.BigIntegerField(default=0)
    output_tokens = models.BigIntegerField(default=0)
    charge = models.BigIntegerField(default=0)
    """Nano-dollars by the price list at the time of each request."""

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=("day", "tenant", "key_id", "pool", "model"), name="usage_once_per_day"),
        )
        indexes = (models.Index(fields=("tenant", "key_id", "day"), name="usage_day_of_key"),)

    @override
    def __str__(self) -> str:
        return f"{self.tenant} {self.model} on {self.day}"


class UsageMinute(models.Model):
    """Spending of one key in one UTC minute, kept for days."""

    minute = models.DateTimeField()
    tenant = models.CharField(max_length=64)
    key_id = models.CharField(max_length=64, blank=True)
    requests = models.BigIntegerField(default=0)
    tokens = models.BigIntegerField(default=0)
    charge = models.BigIntegerField(default=0)

    class Meta:
        constraints = (models.UniqueConstraint(fields=("minute", "tenant", "key_id"), name="usage_once_per_minute"),)

    @override
    def __str__(self) -> str:
        return f"{self.tenant} at {self.minute:%Y-%m-%d %H:%M}"


class EngineDay(models.Model):
    """Seconds and cost of a pool's engines in one UTC day, while Headway ran."""

    day = models.DateField()
    pool = models.CharField(max_length=64)
    model = models.CharField(max_length=200)
    engine_s = models.FloatField(default=0.0)
    priced_s = models.FloatField(default=0.0)
    """Seconds of engines with a price."""
    cost = models.FloatField(default=0.0)
    """Dollars of those."""
    counted_to = models.DateTimeField()

    class Meta:
        constraints = (models.UniqueConstraint(fields=("day", "pool", "model"), name="engine_hours_once_per_day"),)

    @override
    def __str__(self) -> str:
        return f"{self.pool} on {self.day}"
