"""The person or key behind a change; every mutating service takes one, and the audit records it."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib.auth.models import User

from controlplane.platform.models.api_key import ApiKey
from controlplane.platform.role import ALL_POOLS, Role

CONSOLE, API, COMMAND, PROGRAM = "console", "api", "command", "program"


@dataclass(frozen=True, slots=True)
class Actor:
    """A person, an API key, or the program itself, on one request."""

    name: str
    via: str
    user: User | None = None
    request_id: str = ""
    role: Role | None = None
    """The role of an API key, which has no user; without user and role it is the program, which may do everything."""
    key_id: str = ""
    """The API key's id, for its requests that are carried out later."""
    pools: frozenset[str] | None = None
    """Slugs of the only pools in which an API key acts; None: all."""


def person(user: User, *, via: str, request_id: str = "") -> Actor:
    """Return the actor for a signed-in person."""
    return Actor(user.get_username(), via, user, request_id)


def machine(key: ApiKey, *, request_id: str = "") -> Actor:
    """Return the actor for an API key with the scope `manage`; it acts with the key's own role, in the key's pools."""
    name, everywhere = f"key {key.name}"[:150], key.role == Role.ADMIN or ALL_POOLS in key.pools
    pools = None if everywhere else frozenset(key.pools)
    return Actor(name, API, request_id=request_id, role=Role(key.role), key_id=key.key_id, pools=pools)


def program(name: str) -> Actor:
    """Return the actor for a part of the program, such as a job; it may do everything."""
    return Actor(name, PROGRAM)


def command(name: str) -> Actor:
    """Return the actor for a management command, run by any user of the machine."""
    return Actor(name, COMMAND)
