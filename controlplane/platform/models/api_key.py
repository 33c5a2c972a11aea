"""Credential of a client. Only its SHA-256 is stored."""

from __future__ import annotations

import hashlib
from datetime import datetime

import uuid_utils
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from typing_extensions import override

from controlplane.platform.models.tenant import Tenant
from controlplane.platform.resource.declared_field import FieldAccess, TextList, declared
from controlplane.platform.revisions import RevisedModel
from controlplane.platform.role import Role

SCOPES = ("infer", "route", "forward", "manage")
"""infer: the OpenAI-compatible proxy. route: the decision API. forward: decisions by the keys of a proxy's clients.
manage: the management API, with the key's role.
"""
USUAL_SCOPES = ("infer",)
"""The default scopes of a key."""

KEY_START = "hw_"
"""Prefix of every key's text."""

SLO_CLASS = r"^[a-z0-9][a-z0-9_.-]{0,31}$"


def new_key_id() -> str:
    """Return an id that reveals nothing about the key."""
    return f"key-{uuid_utils.uuid7().hex}"


def usual_scopes() -> list[str]:
    """Return the default scopes of a key."""
    return list(USUAL_SCOPES)


def hash_api_key(text: str) -> str:
    """Return the lower-case hex SHA-256 of a key, under which it is stored."""
    return hashlib.sha256(text.encode()).hexdigest()


class ApiKey(RevisedModel):
    """One API key. Its text is shown only once, when it is created or rotated."""

    public_id_field = "key_id"
    in_snapshot = True

    key_id = models.CharField(max_length=64, unique=True, default=new_key_id)
    tenant = declared(
        models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="api_keys"),
        "Tenant",
        "Slug of its tenant.",
        access=FieldAccess.FIXED,
    )
    name = declared(models.CharField(max_length=120), "Name", "Purpose of the key.")
    prefix = models.CharField(max_length=16)
    """First characters of the key, so that people can recognize it."""
    sha256 = declared(models.CharField(max_length=64, unique=True), "SHA-256", access=FieldAccess.HIDDEN)
    """Lower-case hex SHA-256 of the whole key. The key has 256 random bits, so no salt is needed."""
    scopes = declared(
        models.JSONField(default=usual_scopes),
        "Scopes",
        items=TextList(most=len(SCOPES), least=1, choices=SCOPES, ticked=True),
    )
    role = declared(
        models.CharField(max_length=16, choices=Role.choices, default=Role.VIEWER),
        "Role for manage",
        "Role for the scope manage; ignored without that scope.",
    )
    pools = declared(
        models.JSONField(default=list, blank=True),
        "Pools for manage",
        "Pools in which the scope manage applies; * alone: all. None: no pool. An admin's key covers all pools.",
        items=TextList(most=1000, length=64, ticked=True),
    )
    """Slugs of deleted pools remain, without effect."""
    rate_per_min = declared(
        models.PositiveIntegerField(
            null=True, blank=True, validators=[MinValueValidator(1), MaxValueValidator(1_000_000)]
        ),
        "Requests per minute",
        "Refilled evenly, with bursts up to the same number. Requests beyond it get 429. Shared by all connected "
        "gateways. Empty: no limit.",
        unit="per min",
    )
    max_in_flight = declared(
        models.PositiveIntegerField(
            null=True, blank=True, validators=[MinValueValidator(1), MaxValueValidator(100_000)]
        ),
        "Max in-flight requests",
        "A decision counts until its report or the end of its reservation. Empty: no limit.",
    )
    slo_class = declared(
        models.CharField(max_length=32, blank=True, validators=[RegexValidator(SLO_CLASS, "Use a-z, 0-9, . _ -")]),
        "SLO class",
        "Default class of requests, in pools whose policy has it. Empty: none.",
    )
    priority_ceiling = declared(
        models.IntegerField(
            null=True, blank=True, validators=[MinValueValidator(-(2**31)), MaxValueValidator(2**31 - 1)]
        ),
        "Priority ceiling",
        "Most urgent priority; lower numbers go first. Empty: any.",
    )
    origins = declared(
        models.JSONField(default=list, blank=True),
        "Web origins",
        "Pages that may send advisories with this key's tokens, such as https://chat.example.com.",
        items=TextList(most=32, length=210, separator=" "),
    )
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = declared(models.DateTimeField(null=True, blank=True), "Expires")
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    rotated_at = models.DateTimeField(null=True, blank=True)
    previous_prefix = models.CharField(max_length=16, blank=True, default="")
    previous_sha256 = declared(
        models.CharField(max_length=64, blank=True, default="", db_index=True),
        "Previous SHA-256",
        access=FieldAccess.HIDDEN,
    )
    """The secret before the last rotation. Accepted until `previous_until`."""
    previous_until = models.DateTimeField(null=True, blank=True)
    previous_used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("tenant__slug", "created_at")
        constraints = (
            models.CheckConstraint(condition=models.Q(sha256__regex=r"^[0-9a-f]{64}$"), name="api_key_is_hashed"),
            models.CheckConstraint(condition=models.Q(role__in=Role.values), name="api_key_role_known"),
            models.CheckConstraint(
                condition=models.Q(rate_per_min=None) | models.Q(rate_per_min__range=(1, 1_000_000)),
                name="api_key_rate_in_range",
            ),
            models.CheckConstraint(
                condition=models.Q(max_in_flight=None) | models.Q(max_in_flight__range=(1, 100_000)),
                name="api_key_concurrency_in_range",
            ),
        )

    @override
    def __str__(self) -> str:
        return f"{self.prefix}…"

    def accepts_previous(self, now: datetime) -> bool:
        """Return whether the secret before the last rotation is still accepted."""
        return self.previous_until is not None and now < self.previous_until
