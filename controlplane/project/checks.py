"""Rejects settings at startup that would lose data, split the fleet's state, or weaken security."""

from __future__ import annotations

import os
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, register, run_checks

from gateway.base.peer_settings import PeerSettingsError, peer_settings
from kvstore.keys.keyring import MIN_CHARACTERS, is_weak
from kvstore.transfer.tls import is_loopback

OURS = ("headway",)
"""The tag of these checks. Servers run only these at startup, because Django's checks concern only the code and load
every page.
"""


class UnsafeSettingsError(RuntimeError):
    """The settings would lose data, split the fleet's state, or weaken security."""


def reject_unsafe() -> None:
    """Raise UnsafeSettingsError with all reasons, for servers that start without a management command."""
    messages = [message for message in run_checks(tags=OURS) if message.is_serious()]
    if messages:
        raise UnsafeSettingsError(" ".join(f"{message.msg} {message.hint}" for message in messages))


@register(*OURS)
def several_processes_share_a_bus(**_kwargs: Any) -> list[CheckMessage]:
    """Reject several processes if each would have a bus server of its own."""
    if settings.PROCESSES > 1 and not settings.REDIS_URL:
        return [
            Error(
                f"{settings.PROCESSES} processes would each have their own bus and could not communicate.",
                hint="Set REDIS_URL, or HEADWAY_PROCESSES=1 (and WEB_CONCURRENCY, if set).",
                id="headway.E001",
            )
        ]
    return []


@register(*OURS)
def redis_url_is_one(**_kwargs: Any) -> list[CheckMessage]:
    """Reject a REDIS_URL that the client libraries cannot use."""
    scheme, separator, rest = settings.REDIS_URL.partition("://")
    if not settings.REDIS_URL or (scheme in ("redis", "rediss", "unix") and separator and rest):
        return []
    return [
        Error(
            "REDIS_URL is not the address of a Redis server.",
            hint="Write redis://host:6379/0, rediss://… for TLS, or unix:///path/to/socket.",
            id="headway.E002",
        )
    ]


@register(*OURS)
def several_processes_share_secrets(**_kwargs: Any) -> list[CheckMessage]:
    """Reject several processes if each would generate different secrets."""
    if settings.PROCESSES == 1 or settings.SECRETS_GIVEN:
        return []
    return [
        Error(
            f"{settings.PROCESSES} processes take SECRET_KEY or HEADWAY_FLEET_SECRET from the state directory, "
            "which other machines do not have: sessions and block keys would differ.",
            hint="Set SECRET_KEY and HEADWAY_FLEET_SECRET, or their _FILE variants, to the same values everywhere.",
            id="headway.E006",
        )
    ]


@register(*OURS)
def debug_stays_at_home(**_kwargs: Any) -> list[CheckMessage]:
    """Reject DEBUG, which reveals source and settings, if other machines can reach the server."""
    if settings.DEBUG and not settings.LOOPBACK_ONLY:
        return [
            Error(
                "HEADWAY_DEBUG is on while HEADWAY_ALLOWED_HOSTS names more than this machine.",
                hint="Turn HEADWAY_DEBUG off.",
                id="headway.E003",
            )
        ]
    return []


@register(*OURS)
def secrets_are_strong(**_kwargs: Any) -> list[CheckMessage]:
    """Reject weak secrets if other machines can reach the server, because guesses can be tested offline."""
    if settings.LOOPBACK_ONLY and not _has_peers_elsewhere():
        return []
    return [
        Error(
            f"{name} is too weak.",
            hint=f"Use at least {MIN_CHARACTERS} random characters: `openssl rand -base64 48`.",
            id="headway.E004",
        )
        for name in weak_secrets()
    ]


@register(*OURS)
def sqlite_locks_first(**_kwargs: Any) -> list[CheckMessage]:
    """Reject SQLite without IMMEDIATE transactions, because reading and then writing fails with concurrent writers."""
    return [
        Error(
            f"The SQLite database {alias!r} lacks OPTIONS['transaction_mode'] = 'IMMEDIATE'.",
            hint="Keep DATABASES as controlplane.project.settings defines it.",
            id="headway.E005",
        )
        for alias, database in settings.DATABASES.items()
        if database["ENGINE"] == "django.db.backends.sqlite3"
        and database.get("OPTIONS", {}).get("transaction_mode") != "IMMEDIATE"
    ]


def weak_secrets() -> list[str]:
    """Return the names of secrets that are short, have few distinct characters, or are Django's well-known insecure
    ones.
    """
    known = {
        "SECRET_KEY": settings.SECRET_KEY,
        "SECRET_KEY_ALSO": "".join(settings.SECRET_KEY_FALLBACKS),
        "HEADWAY_FLEET_SECRET": settings.FLEET_SECRET.decode(errors="replace"),
        "HEADWAY_FLEET_SECRET_ALSO": settings.FLEET_SECRET_ALSO.decode(errors="replace"),
    }
    return [name for name, value in known.items() if is_weak(value) and (value or not name.endswith("_ALSO"))]


def _has_peers_elsewhere() -> bool:
    """Return whether this installation's gateway listens for gateways on other machines."""
    try:
        peers = peer_settings(os.environ)
    except (OSError, PeerSettingsError):
        # `manage.py up` reports what is wrong with it.
        return False
    return not is_loopback(peers.host)
