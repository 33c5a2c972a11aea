"""Fields that the gateway reads from a proxied request's body and headers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from gateway.api.fleet_visibility import witness_of
from gateway.proxy.api_call import ApiCall
from gateway.requests.caller_facts import PROXY
from gateway.requests.formats.owned_fields import is_comparable
from gateway.requests.gateway_request import GatewayRequest, gateway_request
from gateway.server.http.json_body import BadBodyError, lax_int
from routing.values.hop import Hop

if TYPE_CHECKING:
    from gateway.pools.pool.live_pool import LivePool

MAX_SALT = 1024
MAX_SEQUENCES = 128
"""Limit of counted answers to one prompt. Engines allow fewer."""


def request_of(call: ApiCall, pool: LivePool, hop: Hop | None) -> GatewayRequest:
    """Return the call's requirements for the pool, without its prompt.

    Raise BadBodyError, or ApiError 400 for a class that the pool lacks.
    """
    caller, body, head = call.caller, call.body, call.exchange.head
    return gateway_request(
        pool.entry,
        None,
        call.decision_id,
        caller,
        call.arrived_s,
        msgspec.structs.replace(call.facts, client_request_id=head.client_request_id),
        next((limit for name in call.endpoint.limits if (limit := _whole_number(body, name))), 0),
        _sequences(body) if call.endpoint.generates else 0,
        witness_of(caller, pool),
        is_comparable(body),
        door=PROXY,
        model=body["model"],
        adapter=pool.names.lora(body["model"]),
        proxied=True,
        hop=hop,
        lease=call.forwarded.lease if call.forwarded is not None else None,
    )


def _sequences(body: dict[str, Any]) -> int:
    """Return the number of answers decoded for the prompt. A value that engines read as no number counts as one."""
    asked = [number for name in ("n", "best_of") if (number := lax_int(body.get(name))) is not None]
    return min(MAX_SEQUENCES, max(1, *asked)) if asked else 1


def own_salt(body: dict[str, Any]) -> str | None:
    """Return the salt that separates this prompt from the caller's others, None if there is none."""
    salt = body.get("cache_salt")
    if salt is None or (isinstance(salt, str) and len(salt) <= MAX_SALT):
        return salt
    raise BadBodyError(
        "bad_field", f"Send cache_salt as a string of at most {MAX_SALT} characters.", param="cache_salt"
    )


def _whole_number(body: dict[str, Any], name: str) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    number = lax_int(value)
    if number is None or not -(2**31) <= number < 2**31:
        raise BadBodyError("bad_field", f"Send {name} as a whole number.", param=name)
    return number
