"""A person's console session: owner, address, start, and end."""

from __future__ import annotations

import uuid_utils
from django.conf import settings
from django.db import models
from typing_extensions import override


def new_session_id() -> str:
    """Return a public session id, for use in pages. It reveals nothing about the cookie."""
    return f"session-{uuid_utils.uuid7().hex}"


class ConsoleSession(models.Model):
    """One sign-in. Only `session_key` contains the cookie's secret, and no page or log shows it."""

    session_id = models.CharField(max_length=64, unique=True, default=new_session_id)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="console_sessions")
    session_key = models.CharField(max_length=40, unique=True)
    started_at = models.DateTimeField()
    seen_at = models.DateTimeField()
    """Time of the last request, to the minute."""
    address = models.CharField(max_length=64, blank=True)
    agent = models.CharField(max_length=200, blank=True)
    method = models.CharField(max_length=32, blank=True, default="")
    """How the person signed in, such as password, password and code, passkey, or provider."""
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("-seen_at", "-id")
        indexes = (models.Index(fields=("ended_at", "-seen_at"), name="console_session_open"),)

    @override
    def __str__(self) -> str:
        return f"{self.user} since {self.started_at:%Y-%m-%d %H:%M}"
