"""Makes and revokes API keys."""

from __future__ import annotations

import hashlib
import secrets
from datetime import datetime

from django.db import transaction
from django.utils import timezone

from controlplane.models import ApiKey, Tenant
from controlplane.services.publication import record_change

KEY_START = "sy_"
_PREFIX_LENGTH = 11


def create_api_key(tenant: Tenant, name: str, *, expires_at: datetime | None = None) -> tuple[ApiKey, str]:
    """Store a new random key and return it with its text, which exists nowhere else."""
    text = KEY_START + secrets.token_urlsafe(32)
    return adopt_api_key(tenant, name, text, expires_at=expires_at), text


def adopt_api_key(tenant: Tenant, name: str, text: str, *, expires_at: datetime | None = None) -> ApiKey:
    """Store the hash of a key that was made elsewhere (the first run's)."""
    with transaction.atomic():
        key = ApiKey.objects.create(
            tenant=tenant,
            name=name,
            prefix=text[:_PREFIX_LENGTH],
            sha256=hash_api_key(text),
            expires_at=expires_at,
        )
        record_change()
    return key


def revoke_api_key(key: ApiKey) -> bool:
    """Revoke the key for good; False when it was revoked before."""
    with transaction.atomic():
        changed = ApiKey.objects.filter(pk=key.pk, revoked_at=None).update(revoked_at=timezone.now())
        if changed:
            record_change()
    return bool(changed)


def hash_api_key(text: str) -> str:
    """Return the lower-case hex SHA-256 by which keys are stored and looked up."""
    return hashlib.sha256(text.encode()).hexdigest()
