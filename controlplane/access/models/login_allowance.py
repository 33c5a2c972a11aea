"""Remaining login attempts, shared by all processes and kept across restarts."""

from __future__ import annotations

from django.db import models
from typing_extensions import override


class LoginAllowance(models.Model):
    """A token bucket of login attempts. `key` is a digest of the source, which hides names and addresses."""

    key = models.CharField(max_length=64, primary_key=True)
    full_at_s = models.FloatField(db_index=True)
    """Unix seconds at which the bucket is full again; each attempt delays it."""

    @override
    def __str__(self) -> str:
        return self.key[:12]
