"""One pool in one interval of the past."""

from __future__ import annotations

from django.db import models
from typing_extensions import override


class RollupRoster(models.Model):
    """One pool with its engines in the order of the arrays; never changed, deleted with its last roll-up."""

    digest = models.CharField(max_length=64, unique=True)
    """SHA-256 of `data`."""
    data = models.BinaryField()
    """msgpack, see controlplane.history.store."""

    @override
    def __str__(self) -> str:
        return self.digest[:12]


class Rollup(models.Model):
    """One row per pool and interval, whatever the number of engines; the arrays are in `data`.

    `pool` is no foreign key: the past outlives the pool.
    """

    seconds = models.PositiveSmallIntegerField()
    """Length of the interval: 10 or 120."""
    index = models.BigIntegerField()
    """Unix seconds of its start / its length."""
    pool = models.CharField(max_length=64)
    roster = models.ForeignKey(RollupRoster, on_delete=models.PROTECT, related_name="rollups")
    peak_s = models.FloatField()
    """Tallest queue of any engine, seconds of work; enough for the strip of an hour without opening `data`."""
    data = models.BinaryField()
    """See controlplane.history.codec."""

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=("seconds", "index", "pool"), name="rollup_once_per_interval_and_pool"),
        )

    @override
    def __str__(self) -> str:
        return f"{self.pool} {self.seconds} s × {self.index}"
