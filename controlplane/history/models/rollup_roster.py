"""The names behind the numbers of roll-ups: a pool's facts and its engines, stored once while they stay the same."""

from __future__ import annotations

from django.db import models
from typing_extensions import override


class RollupRoster(models.Model):
    """One pool with its engines in the order of the arrays; never changed, forgotten with its last roll-up."""

    digest = models.CharField(max_length=64, unique=True)
    """SHA-256 of `data`."""
    data = models.BinaryField()
    """msgpack, see controlplane.history.store."""

    @override
    def __str__(self) -> str:
        return self.digest[:12]
