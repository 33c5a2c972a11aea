"""A person's console session: its owner, its address, and when it started and ended."""

from __future__ import annotations

import uuid_utils
from django.conf import settings
from django.db import models
from typing_extensions import override


def new_session_id() -> str:
    """Return an id by which pages may name the session; it reveals nothing about its cookie."""
    return f"session-{uuid_utils.uuid7().hex}"


class ConsoleSession(models.Model):
    """One sign-in. The cookie's secret is in `session_key` alone, which no page or log shows."""

    session_id = models.CharField(max_length=64, unique=True, default=new_session_id)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="console_sessions")
    session_key = models.CharField(max_length=40, unique=True)
    started_at = models.DateTimeField()
    seen_at = models.DateTimeField()
    """Last request, to the minute."""
    address = models.CharField(max_length=64, blank=True)
    agent = models.CharField(max_length=200, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("-seen_at", "-id")
        indexes = (models.Index(fields=("ended_at", "-seen_at"), name="console_session_open"),)

    @override
    def __str__(self) -> str:
        return f"{self.user} since {self.started_at:%Y-%m-%d %H:%M}"
