"""The Secrets page: which process uses which version, and what still needs the version being rotated out."""

from __future__ import annotations

import time
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from controlplane.platform.format import count, moment_of
from controlplane.secret_rotation.holders import Holder, holder_questions, newest
from controlplane.secret_rotation.own_secrets import own_secrets
from controlplane.secret_rotation.rotation import Rotation, rotations
from web.access.page import access_page, admins_only


@require_safe
@admins_only
def secrets(request: HttpRequest) -> HttpResponse:
    """List all processes that respond, by kind of secret."""
    holders, now = holder_questions().holders(), timezone.now()
    kinds = rotations(holders, own_secrets(), time.time())
    rotating = sum(bool(kind.also) for kind in kinds)
    return access_page(
        request,
        "secrets",
        f"{count(rotating, 'secret')} under rotation" if rotating else "No secret is under rotation",
        kinds=[_kind(kind, now) for kind in kinds],
        silent=holders.silent,
        processes=len({(item.role, item.name) for item in holders.known}),
    )


def _kind(rotation: Rotation, now: Any) -> dict[str, Any]:
    return {
        "variable": rotation.variable,
        "used": rotation.used,
        "also": rotation.also,
        "not_installed": rotation.not_installed,
        "still_needed": rotation.still_needed,
        "rows": [_row(holder, rotation, now) for holder in rotation.holders],
    }


def _row(holder: Holder, rotation: Rotation, now: Any) -> dict[str, Any]:
    held = holder.secrets
    return {
        "role": holder.role[:1].upper() + holder.role[1:],
        "name": holder.name,
        "used": held.used,
        "also": held.also,
        "differs": held.used != rotation.used,
        "uses": [
            {
                "purpose": use.purpose,
                "count": use.count,
                "who": use.who,
                "newest": moment_of(_time(use.newest_at), now),
            }
            for use in newest(held.uses)
        ],
    }


def _time(unix_s: float) -> Any:
    return timezone.datetime.fromtimestamp(unix_s, timezone.get_default_timezone())
