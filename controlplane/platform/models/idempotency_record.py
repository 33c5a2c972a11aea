"""The answer to a POST with an Idempotency-Key, so that its repetition changes nothing."""

from __future__ import annotations

from django.db import models
from typing_extensions import override


class IdempotencyRecord(models.Model):
    """One named POST of one caller; without a status it is still under way."""

    caller = models.CharField(max_length=128)
    """Whose key it is: keys of different callers are independent."""
    key = models.CharField(max_length=128)
    request_sha256 = models.CharField(max_length=64)
    """Of method, address and body: the same key with another request is an error."""
    status = models.PositiveSmallIntegerField(null=True, blank=True)
    body = models.JSONField(null=True)
    """The answer without the members that are shown only once."""
    headers = models.JSONField(default=dict)
    created_at = models.DateTimeField(db_index=True)

    class Meta:
        constraints = (models.UniqueConstraint(fields=("caller", "key"), name="idempotency_key_once_per_caller"),)

    @override
    def __str__(self) -> str:
        return f"{self.caller} {self.key}"
