"""One change: its actor, the object before and after it, and its reason. Events are never changed or deleted early."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import models
from typing_extensions import override

from controlplane.platform.models.append_only import AppendOnlyError


class AuditEvent(models.Model):
    """One change. Written in the transaction of the change, without secrets."""

    at = models.DateTimeField(db_index=True)
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    actor_name = models.CharField(max_length=150)
    """The actor's name at that time; kept when the person is deleted."""
    via = models.CharField(max_length=16)
    """console, api, command, or program."""
    verb = models.CharField(max_length=64)
    """The action, such as engine.drain or policy.publish."""
    object_kind = models.CharField(max_length=32)
    object_id = models.CharField(max_length=128)
    pool_slug = models.CharField(max_length=64, blank=True)
    """The affected pool; empty: the whole installation."""
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)
    why = models.CharField(max_length=200, blank=True)
    request_id = models.CharField(max_length=128, blank=True)

    class Meta:
        ordering = ("-at", "-id")
        indexes = (
            models.Index(fields=("object_kind", "object_id", "-at"), name="audit_by_object"),
            models.Index(fields=("request_id",), name="audit_by_request"),
            models.Index(fields=("pool_slug", "-at"), name="audit_by_pool"),
        )

    @override
    def __str__(self) -> str:
        return f"{self.actor_name} {self.verb} {self.object_id}"

    @override
    def save(self, *args: Any, **kwargs: Any) -> None:
        """Add the event. Raises AppendOnlyError if it is already stored."""
        if not self._state.adding:
            raise AppendOnlyError("an audit event is never changed")
        super().save(*args, **kwargs)

    @override
    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        """Raise AppendOnlyError, because events are deleted only by age (project.housekeeping)."""
        raise AppendOnlyError("an audit event is not deleted by hand")
