"""The address of an engine that is not registered yet, and whether it may be called."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address, ip_network

from asgiref.sync import async_to_sync
from django.conf import settings

from controlplane.fleet.connect.engine_facts import ConnectedEngineFacts, ConnectRejectedError, ask_engine
from controlplane.fleet.engine_addressing import engine_url_rules
from controlplane.fleet.engine_url import CheckedUrl, RejectedUrlError, check_engine_url
from controlplane.fleet.models.pool import Pool
from gateway.base.engine_api_keys import FLEET_KEY, engine_key

_ANYWHERE = (ip_network("0.0.0.0/0"), ip_network("::/0"))


def engine_address(url: str) -> CheckedUrl:
    """Parse and resolve a typed URL, in any network, without connecting to it.

    Forbidden addresses (metadata services, Headway's database) are rejected. Raises ConnectRejectedError.
    """
    url = url.strip().rstrip("/").removesuffix("/v1")
    try:
        return check_engine_url(url, replace(engine_url_rules(), networks=_ANYWHERE))
    except RejectedUrlError as error:
        sentence = f"{str(error)[:1].upper()}{str(error)[1:]}."
        raise ConnectRejectedError(sentence, "Enter the engine's URL, such as http://10.0.3.7:8000.") from None


def is_allowed(address: CheckedUrl, pool: Pool | None) -> bool:
    """Return whether engines of the pool (None: of a new pool) may have this address."""
    rules = engine_url_rules(pool)
    return all(rules.allows(ip_address(item)) for item in address.addresses)


def may_be_asked(address: CheckedUrl) -> bool:
    """Return whether some pool already allows the address. If not, a person has to allow it first."""
    return any(is_allowed(address, pool) for pool in (None, *Pool.objects.exclude(engine_networks="")))


def facts_at(address: CheckedUrl, *, pool: str = "", key_variable: str = "") -> ConnectedEngineFacts:
    """Read the engine's facts, authenticating with the pool's engine key. Raises ConnectRejectedError."""
    own = Pool.objects.filter(slug=pool).values_list("engine_api_key_env", flat=True).first()
    variable = key_variable or own or FLEET_KEY
    bearer = engine_key(variable, settings.ENGINE_API_KEY)
    return async_to_sync(ask_engine)(address, bearer=bearer, variable=variable)
