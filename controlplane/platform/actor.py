"""The person or key behind a change. Every mutating service requires one, and the audit records it."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib.auth.models import User

from controlplane.platform.models.api_key import ApiKey
from controlplane.platform.role import ALL_POOLS, Role

CONSOLE, API, COMMAND, PROGRAM = "console", "api", "command", "program"


@dataclass(frozen=True, slots=True)
class Actor:
    """A person, an API key, or the program itself, in one request."""

    name: str
    via: str
    user: User | None = None
    request_id: str = ""
    role: Role | None = None
    """Role of an API key, which has no user. Without user and role, the actor is the program and may do everything."""
    key_id: str = ""
    """The API key's id, for changes that are carried out after the request."""
    pools: frozenset[str] | None = None
    """Slugs of the pools in which an API key may act; None: all."""


def person(user: User, *, via: str, request_id: str = "") -> Actor:
    """Return the actor for a signed-in person."""
    return Actor(user.get_username(), via, user, request_id)


def machine(key: ApiKey, *, request_id: str = "") -> Actor:
    """Return the actor for an API key with the scope `manage`, limited to the key's role and pools."""
    name, everywhere = f"key {key.name}"[:150], key.role == Role.ADMIN or ALL_POOLS in key.pools
    pools = None if everywhere else frozenset(key.pools)
    return Actor(name, API, request_id=request_id, role=Role(key.role), key_id=key.key_id, pools=pools)


def program(name: str) -> Actor:
    """Return the actor for a part of the program, such as a job. It may do everything."""
    return Actor(name, PROGRAM)


def command(name: str) -> Actor:
    """Return the actor for a management command, run by any user of the machine."""
    return Actor(name, COMMAND)
