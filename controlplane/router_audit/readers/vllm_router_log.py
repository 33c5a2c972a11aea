"""The log of production-stack's `vllm-router`, as text or JSON. It names engines and sessions, but no lengths.

Source: vllm-project/production-stack, src/vllm_router/services/request_service/request.py ("Routing request"), log.py.
"""

from __future__ import annotations

import re

from controlplane.router_audit.readers.line_fields import address
from planning.router_audit.logged_request import LoggedRequest, OtherLineError

_ROUTED = re.compile(
    rb"Routing request (\S+) (?:with session id (.+?) )?to (\S+) at (\d+(?:\.\d+)?), process time = (\d+(?:\.\d+)?)"
)


def vllm_router_request(line: bytes) -> LoggedRequest:
    """Return the request of one line."""
    routed = _ROUTED.search(line)
    if routed is None:
        raise OtherLineError("message about something else, or a retry, whose first engine counts")
    name, session, url, at_s, took_s = ((part or b"").decode(errors="replace") for part in routed.groups())
    return LoggedRequest(
        request_id=name,
        arrived_s=float(at_s) - float(took_s),
        engine=address(url),
        session="" if session == "None" else session,
    )
