"""Fields that the gateway reads from a proxied request's body and headers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gateway.api.fleet_visibility import witness_of
from gateway.formats.owned_fields import is_comparable
from gateway.http.json_body import BadBodyError, lax_int, reject_nul_name
from gateway.proxy.api_call import ApiCall
from gateway.requests.agents import agent_of, session_of_agent
from gateway.requests.gateway_request import GatewayRequest, gateway_request
from gateway.requests.objective_headers import slo_class, tpot_slo_s, ttft_slo_s
from gateway.requests.priority_ceiling import allowed_priority
from routing.values.hop import Hop

if TYPE_CHECKING:
    from gateway.pool.live_pool import LivePool

MAX_SALT = 1024
MAX_SEQUENCES = 128
"""Limit of counted answers to one prompt. Engines allow fewer."""


def session_of(body: dict[str, Any], headers: Mapping[bytes, bytes]) -> str:
    """Return the session that the request names, empty if none; raise BadBodyError."""
    session = body.get("session_id") or headers.get(b"x-session-id", b"").decode("latin-1")
    reject_nul_name(session, "session_id")
    if isinstance(session, str) and session:
        return session[:256]
    return session_of_agent(*agent_of(headers))


def priority_of(call: ApiCall) -> int | None:
    """Return the requested priority within its key's limit, None if none is requested."""
    priority = _whole_number(call.body, "priority")
    return None if priority is None else allowed_priority(call.caller, priority)


def request_of(call: ApiCall, pool: LivePool, hop: Hop | None) -> GatewayRequest:
    """Return the call's requirements for the pool, without its prompt.

    Raise BadBodyError, or ApiError 400 for a class that the pool lacks.
    """
    caller, body, headers = call.caller, call.body, call.exchange.head.headers
    agent, workflow_id = agent_of(headers)
    return gateway_request(
        pool.entry,
        None,
        call.decision_id,
        caller.tenant_id,
        call.arrived_s,
        ttft_slo_s(headers),
        next((limit for name in call.endpoint.limits if (limit := _whole_number(body, name))), 0),
        session_of(body, headers),
        priority_of(call),
        tpot_slo_s(headers),
        slo_class(headers),
        caller.slo_class,
        proxied=True,
        agent=agent,
        workflow_id=workflow_id,
        sequences=_sequences(body) if call.endpoint.generates else 0,
        witness=witness_of(caller, pool),
        comparable=is_comparable(body),
        hop=hop,
        client_request_id=call.exchange.head.client_request_id,
        lease=call.forwarded.lease if call.forwarded is not None else None,
        model=body["model"],
        adapter=pool.names.lora(body["model"]),
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
