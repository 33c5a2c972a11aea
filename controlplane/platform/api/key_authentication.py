"""Authenticates programs by an API key with the scope manage."""

from __future__ import annotations

from django.contrib.auth.models import AnonymousUser
from django.db.models import Q
from django.utils import timezone
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed, PermissionDenied
from rest_framework.request import Request
from typing_extensions import override

from controlplane.platform.models.api_key import KEY_START, ApiKey, hash_api_key
from controlplane.platform.outage.bus_revocations import bus_revocations

SCOPE = "manage"
MAX_KEY_LENGTH = 512


class KeyAuthentication(BaseAuthentication):
    """`Authorization: Bearer hw_…`. The key is found by its hash, and its text is not passed on."""

    @override
    def authenticate(self, request: Request) -> tuple[AnonymousUser, ApiKey] | None:
        """Return the key, or None without the header. Raises AuthenticationFailed, PermissionDenied."""
        header = request.headers.get("Authorization")
        if header is None:
            return None
        scheme, _, text = header.partition(" ")
        text = text.strip()
        if scheme.lower() != "bearer" or not text.startswith(KEY_START) or len(text) > MAX_KEY_LENGTH:
            # Raised, not None: a wrong key must not fall through to the browser's session.
            raise AuthenticationFailed("The Authorization header must be 'Bearer hw_…' with one of our API keys.")
        sha256, now = hash_api_key(text), timezone.now()
        either = Q(sha256=sha256) | Q(previous_sha256=sha256, previous_until__gt=now)
        key = ApiKey.objects.select_related("tenant").filter(either, revoked_at=None).first()
        # The row may still be in force: keys are revoked over the bus while the database cannot be written.
        if key is None or bus_revocations().revokes(sha256):
            raise AuthenticationFailed("This API key is unknown or revoked; create one under Access.")
        if key.expires_at is not None and key.expires_at <= now:
            raise AuthenticationFailed("This API key has expired; create a new one under Access.")
        if SCOPE not in key.scopes:
            raise PermissionDenied(f"This API key lacks the scope {SCOPE}; an admin can give it under Access.")
        return AnonymousUser(), key

    @override
    def authenticate_header(self, request: Request) -> str:
        """Return the challenge of a 401 response."""
        return 'Bearer realm="headway"'
