"""The response to a POST with an Idempotency-Key, so that a repeated request changes nothing."""

from __future__ import annotations

from django.db import models
from typing_extensions import override


class IdempotencyRecord(models.Model):
    """One POST with an Idempotency-Key. Without a status, it is still running."""

    caller = models.CharField(max_length=128)
    """Owner of the key. Keys of different callers are independent."""
    key = models.CharField(max_length=128)
    request_sha256 = models.CharField(max_length=64)
    """Hash of method, address, and body. Using the key for another request is an error."""
    status = models.PositiveSmallIntegerField(null=True, blank=True)
    body = models.JSONField(null=True)
    """The response without the members that are shown only once."""
    headers = models.JSONField(default=dict)
    created_at = models.DateTimeField(db_index=True)

    class Meta:
        constraints = (models.UniqueConstraint(fields=("caller", "key"), name="idempotency_key_once_per_caller"),)

    @override
    def __str__(self) -> str:
        return f"{self.caller} {self.key}"
