"""Proof of who sends requests; only its SHA-256 is kept."""

from __future__ import annotations

import uuid_utils
from django.db import models
from typing_extensions import override

from controlplane.models.tenant import Tenant


def new_key_id() -> str:
    """Return an id that tells nothing about the key."""
    return f"key-{uuid_utils.uuid7().hex}"


class ApiKey(models.Model):
    """One API key, shown once when it is made and never again."""

    key_id = models.CharField(max_length=64, unique=True, default=new_key_id)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="api_keys")
    name = models.CharField(max_length=120)
    prefix = models.CharField(max_length=16)
    """First characters, so that people can tell keys apart."""
    sha256 = models.CharField(max_length=64, unique=True)
    """Lower-case hex of the whole key's SHA-256. The key has 256 random bits, so no salt is needed."""
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("tenant__slug", "created_at")
        constraints = (
            models.CheckConstraint(condition=models.Q(sha256__regex=r"^[0-9a-f]{64}$"), name="api_key_is_hashed"),
        )

    @override
    def __str__(self) -> str:
        return f"{self.prefix}…"
