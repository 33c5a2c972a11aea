"""One pool in one past interval."""

from __future__ import annotations

from django.db import models
from typing_extensions import override


class RollupRoster(models.Model):
    """One pool and its engines in the order of the arrays. It never changes and is deleted with its last roll-up."""

    digest = models.CharField(max_length=64, unique=True)
    """SHA-256 of `data`."""
    data = models.BinaryField()
    """msgpack; format in controlplane.history.store."""

    @override
    def __str__(self) -> str:
        return self.digest[:12]


class Rollup(models.Model):
    """One row per pool and interval, regardless of the number of engines. `data` contains the arrays.

    `pool` is not a foreign key, because the history outlives the pool.
    """

    seconds = models.PositiveSmallIntegerField()
    """Length of the interval in seconds: 10 or 120."""
    index = models.BigIntegerField()
    """Start of the interval in unix seconds, divided by its length."""
    pool = models.CharField(max_length=64)
    roster = models.ForeignKey(RollupRoster, on_delete=models.PROTECT, related_name="rollups")
    peak_s = models.FloatField()
    """Longest queue of any engine, in seconds of work. The hour strip needs only this value."""
    data = models.BinaryField()
    """Encoded by controlplane.history.codec."""

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=("seconds", "index", "pool"), name="rollup_once_per_interval_and_pool"),
        )

    @override
    def __str__(self) -> str:
        return f"{self.pool} {self.seconds} s × {self.index}"
