"""Remaining login attempts, for all processes and across restarts."""

from __future__ import annotations

from django.db import models
from typing_extensions import override


class LoginAllowance(models.Model):
    """A bucket of attempts; `key` is a digest of their source, which reveals neither names nor addresses."""

    key = models.CharField(max_length=64, primary_key=True)
    full_at_s = models.FloatField(db_index=True)
    """Unix seconds at which the bucket is full again; each attempt moves it back."""

    @override
    def __str__(self) -> str:
        return self.key[:12]
