"""Registers and changes engines, after checking that their addresses may be connected to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from controlplane.fleet.engine_addressing import engine_url_rules
from controlplane.fleet.engine_url import EngineUrlRules, RejectedUrlError, check_engine_url, check_kv_endpoint
from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import Pool
from controlplane.platform import recorded_change
from controlplane.platform.actor import Actor
from controlplane.platform.field_problems import check_names
from controlplane.platform.resource.declared_field import settable_fields
from controlplane.platform.role import Role
from controlplane.platform.roles import require

SOCKET_FIELDS = ("kv_events_endpoint", "kv_replay_endpoint")
ADDRESS_FIELDS = ("url", *SOCKET_FIELDS)
ENGINE_FIELDS = frozenset(settable_fields(Engine))
_OURS = frozenset({"engine_id", "supervised", "source"})
"""Fields of a new engine that only the program sets."""


def register_engine(
    pool: Pool,
    name: str,
    url: str,
    *,
    actor: Actor,
    why: str = "",
    **fields: Any,
) -> Engine:
    """Store and publish a new engine. `fields` are the further addresses and the further fields of `store_engine`.

    Raises NotAllowedError, RejectedUrlError, InvalidFieldsError.
    """
    require(actor, Role.OPERATOR, pool)
    addresses = checked_addresses({"url": url, **fields}, pool)
    others = {field: value for field, value in fields.items() if field not in ADDRESS_FIELDS}
    return store_engine(pool, name, addresses, actor=actor, why=why, **others)


def store_engine(
    pool: Pool,
    name: str,
    addresses: Mapping[str, str],
    *,
    actor: Actor,
    why: str = "",
    **fields: Any,
) -> Engine:
    """Store and publish a new engine with the addresses from `checked_addresses`. `fields` are in ENGINE_FIELDS or
    _OURS.

    Raises NotAllowedError, InvalidFieldsError.
    """
    require(actor, Role.OPERATOR, pool)
    check_names(fields, ENGINE_FIELDS | _OURS)
    return recorded_change.create(
        Engine(pool=pool, name=name, **addresses, **fields), "engine.register", actor=actor, why=why
    )


def change_engine(
    engine: Engine, changes: Mapping[str, Any], *, actor: Actor, expected: int | None = None, why: str = ""
) -> Engine:
    """Change and publish ENGINE_FIELDS of an engine. A given URL is resolved again.

    Raises NotAllowedError, RejectedUrlError, InvalidFieldsError, StaleRevisionError.
    """
    require(actor, Role.OPERATOR, engine.pool)
    check_names(changes, ENGINE_FIELDS)
    checked = {**changes, **checked_addresses(changes, engine.pool)}
    return recorded_change.change(engine, checked, "engine.change", actor=actor, expected=expected, why=why)


def checked_addresses(given: Mapping[str, Any], pool: Pool | None) -> dict[str, str]:
    """Return the given address fields, checked and resolved. Raises RejectedUrlError with the `field`."""
    rules = engine_url_rules(pool)
    checked: dict[str, str] = {}
    for field in ADDRESS_FIELDS:
        if field not in given:
            continue
        try:
            if field == "url":
                address = check_engine_url(given[field], rules)
                checked |= {"url": address.url, "connect_url": address.connect_url}
            else:
                checked[field] = _kv_endpoint(given[field], rules)
        except RejectedUrlError as error:
            error.field = field
            raise
    return checked


def _kv_endpoint(endpoint: str, rules: EngineUrlRules) -> str:
    return check_kv_endpoint(endpoint, rules).connect_url if endpoint else ""
