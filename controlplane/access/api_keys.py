"""Creates, changes, rotates, and revokes API keys."""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Any

from django.db import transaction
from django.utils import timezone

from controlplane.fleet.models.pool import Pool
from controlplane.platform import recorded_change
from controlplane.platform.actor import Actor
from controlplane.platform.field_problems import check_names, problem
from controlplane.platform.models.api_key import KEY_START, SCOPES, USUAL_SCOPES, ApiKey, hash_api_key
from controlplane.platform.models.tenant import Tenant
from controlplane.platform.outage.bus_revocations import bus_revocations, revocation_of
from controlplane.platform.outage.unwritable import CANNOT_WRITE, cause_of, database_writes
from controlplane.platform.resource.declared_field import settable_fields
from controlplane.platform.revisions import locked
from controlplane.platform.role import ALL_POOLS, Role
from controlplane.platform.roles import require

KEY_FIELDS = frozenset(settable_fields(ApiKey))
MAX_ORIGINS = 32
OVERLAP_H, MAX_OVERLAP_H = 24, 720
_ORIGIN = re.compile(r"https?://[a-z0-9.\-\[\]:]{1,200}").fullmatch
PREFIX_LENGTH = 11

logger = logging.getLogger(__name__)


def create_api_key(
    tenant: Tenant,
    name: str,
    *,
    actor: Actor,
    why: str = "",
    **fields: Any,
) -> tuple[ApiKey, str]:
    """Create and publish a random API key. Return it with its text, which is never stored.

    `fields` are further KEY_FIELDS. `role` applies to a key with the scope manage, in `pools` (slugs or ALL_POOLS;
    empty: no pool). Raises NotAllowedError, InvalidFieldsError.
    """
    text = KEY_START + secrets.token_urlsafe(32)
    return adopt_api_key(tenant, name, text, actor=actor, why=why, **fields), text


def adopt_api_key(
    tenant: Tenant,
    name: str,
    text: str,
    *,
    actor: Actor,
    scopes: Sequence[str] = USUAL_SCOPES,
    why: str = "",
    **limits: Any,
) -> ApiKey:
    """Store the hash of a key that was created elsewhere (on the first run). `limits` are further KEY_FIELDS."""
    require(actor, Role.ADMIN)
    check_names(limits, KEY_FIELDS)
    limits["pools"] = _checked_pools(limits.get("pools", ()), limits.get("role", Role.VIEWER))
    limits["origins"] = _checked_origins(limits.get("origins", ()))
    key = ApiKey(
        tenant=tenant,
        name=name,
        prefix=text[:PREFIX_LENGTH],
        sha256=hash_api_key(text),
        scopes=_checked_scopes(scopes),
        **limits,
    )
    return recorded_change.create(key, "key.create", actor=actor, why=why)


def change_api_key(
    key: ApiKey, changes: Mapping[str, Any], *, actor: Actor, expected: int | None = None, why: str = ""
) -> ApiKey:
    """Change and publish KEY_FIELDS. Raises NotAllowedError, InvalidFieldsError, StaleRevisionError."""
    require(actor, Role.ADMIN)
    check_names(changes, KEY_FIELDS)
    if "scopes" in changes:
        changes = {**changes, "scopes": _checked_scopes(changes["scopes"])}
    if "origins" in changes:
        changes = {**changes, "origins": _checked_origins(changes["origins"])}
    # Checked together: an admin's key names no pools.
    if "pools" in changes or "role" in changes:
        pools, role = changes.get("pools", key.pools), changes.get("role", key.role)
        changes = {**changes, "pools": _checked_pools(pools, role, kept=key.pools)}
    with transaction.atomic():
        if locked(key, expected).revoked_at is not None:
            raise problem("", "The key is revoked permanently; create a new one.")
        return recorded_change.change(key, changes, "key.change", actor=actor, why=why)


def rotate_api_key(
    key: ApiKey, *, actor: Actor, overlap_h: int = OVERLAP_H, expected: int | None = None, why: str = ""
) -> tuple[ApiKey, str]:
    """Give the key a new secret. The one in use stays valid for `overlap_h` hours, an earlier one ends now.

    Return the key with the new text, which is never stored. Raises NotAllowedError, InvalidFieldsError,
    StaleRevisionError.
    """
    require(actor, Role.ADMIN)
    if not 0 <= overlap_h <= MAX_OVERLAP_H:
        raise problem("overlap_h", f"Must be 0 to {MAX_OVERLAP_H} hours.")
    text, now = KEY_START + secrets.token_urlsafe(32), timezone.now()
    with transaction.atomic():
        stored = locked(key, expected)
        if stored.revoked_at is not None or bus_revocations().revokes(stored.sha256):
            raise problem("", "The key is revoked permanently; create a new one.")
        changes = {
            "prefix": text[:PREFIX_LENGTH],
            "sha256": hash_api_key(text),
            "last_used_at": None,
            "rotated_at": now,
            "previous_prefix": stored.prefix,
            "previous_sha256": stored.sha256,
            "previous_until": now + timedelta(hours=overlap_h),
            "previous_used_at": stored.last_used_at,
        }
        return recorded_change.change(key, changes, "key.rotate", actor=actor, why=why), text


def end_previous_secret(key: ApiKey, *, actor: Actor, expected: int | None = None, why: str = "") -> bool:
    """Reject the secret before the last rotation from now on. Return False if it is no longer accepted.

    Raises NotAllowedError, StaleRevisionError.
    """
    require(actor, Role.ADMIN)
    now = timezone.now()
    with transaction.atomic():
        if not locked(key, expected).accepts_previous(now):
            return False
        recorded_change.change(key, {"previous_until": now}, "key.end_previous", actor=actor, why=why)
    return True


def revoke_api_key(key: ApiKey, *, actor: Actor, expected: int | None = None, why: str = "") -> bool:
    """Revoke the key permanently.

    Return False if it was already revoked. Raises NotAllowedError, StaleRevisionError.
    """
    require(actor, Role.ADMIN)
    with transaction.atomic():
        if locked(key, expected).revoked_at is not None:
            return False
        recorded_change.change(key, {"revoked_at": timezone.now()}, "key.revoke", actor=actor, why=why)
    return True


class Revoked(StrEnum):
    """Outcome of a revocation."""

    STORED = "stored"
    BEFORE = "before"
    """The key was already revoked."""
    ON_BUS = "on bus"
    """Gateways reject the key; the database stores the revocation when it can be written."""


def revoke_at_once(key: ApiKey, *, actor: Actor, expected: int | None = None, why: str = "") -> Revoked:
    """Revoke the key permanently. If the database cannot be written, only publish the revocation on the bus.

    Raises NotAllowedError, StaleRevisionError, BusAwayError.
    """
    require(actor, Role.ADMIN)
    try:
        return Revoked.STORED if revoke_api_key(key, actor=actor, expected=expected, why=why) else Revoked.BEFORE
    except CANNOT_WRITE as error:
        # A fault of ours is no outage, and must not revoke a key.
        if cause_of(error) is None:
            raise
        database_writes().failed(error)
    logger.warning("a key is revoked over the bus: the database cannot be written", extra={"key_id": key.key_id})
    for sha256 in filter(None, (key.sha256, key.previous_sha256)):
        bus_revocations().publish(revocation_of(sha256, key.key_id, actor=actor, why=why))
    return Revoked.ON_BUS


def _checked_scopes(scopes: Any) -> list[str]:
    known = isinstance(scopes, Sequence) and not isinstance(scopes, str) and all(scope in SCOPES for scope in scopes)
    if not known or not scopes:
        raise problem("scopes", f"Must be one or more of {', '.join(SCOPES)}.")
    return [scope for scope in SCOPES if scope in scopes]


def _checked_origins(origins: Any) -> list[str]:
    """Return the distinct origins in order, in the form that browsers send."""
    if not isinstance(origins, Sequence) or isinstance(origins, str) or len(origins) > MAX_ORIGINS:
        raise problem("origins", f"Must be a list of at most {MAX_ORIGINS} origins.")
    for origin in origins:
        if not isinstance(origin, str) or _ORIGIN(origin.lower()) is None:
            raise problem("origins", "Write an origin as https://chat.example.com, without a path.")
    return sorted({origin.lower() for origin in origins})


def _checked_pools(slugs: Any, role: str, *, kept: Sequence[str] = ()) -> list[str]:
    """Return the distinct slugs in order, or ALL_POOLS alone. A deleted pool is valid only if it is in `kept`."""
    if not isinstance(slugs, Sequence) or isinstance(slugs, str) or not all(isinstance(slug, str) for slug in slugs):
        raise problem("pools", "Must be a list of pools' slugs.")
    if ALL_POOLS in slugs:
        if len(set(slugs)) > 1:
            raise problem("pools", "Choose all pools, or some of them.")
        return [ALL_POOLS]
    known = set(Pool.objects.filter(slug__in=slugs).values_list("slug", flat=True))
    # A key keeps the slugs of deleted pools, which open nothing: without them its list might become empty by a
    # deletion.
    unknown = sorted(set(slugs) - known - set(kept))
    if unknown:
        raise problem("pools", f"No such pool: {unknown[0]}.")
    if slugs and role == Role.ADMIN:
        raise problem("pools", "An admin acts in all pools; choose the role operator or viewer, or no pool.")
    return sorted(set(slugs))
