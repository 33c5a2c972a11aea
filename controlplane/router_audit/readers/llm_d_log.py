"""The JSON log of llm-d's endpoint picker at verbosity 3 or more. It names engines, but no lengths.

Source: llm-d/llm-d-router, pkg/epp/requestcontrol/director.go ("Request handled"), pkg/epp/handlers/server.go ("EPP
received request", "EPP sent response body back to proxy"), pkg/common/observability/logging/logger.go (zap's keys).
"""

from __future__ import annotations

from controlplane.router_audit.readers.line_fields import address, json_object, unix_s
from planning.router_audit.logged_request import LoggedRequest, OtherLineError


class LlmDLog:
    """Reads the lines of one file in order. Mutable: when requests that have not ended arrived, by their ids."""

    def __init__(self) -> None:
        self._arrived: dict[str, float] = {}

    def __call__(self, line: bytes) -> LoggedRequest:
        """Return what one line states."""
        fields = json_object(line)
        message, name = fields.get("msg"), str(fields.get("x-request-id") or "")
        if message == "EPP received request" and name:
            at_s = self._arrived[name] = unix_s(fields.get("ts"))
            return LoggedRequest(request_id=name, arrived_s=at_s)
        if message == "Request handled":
            endpoint = str(fields.get("endpoint", "")).partition(",")[0]
            return LoggedRequest(request_id=name, arrived_s=unix_s(fields.get("ts")), engine=address(endpoint))
        if message == "EPP sent response body back to proxy" and name in self._arrived:
            return LoggedRequest(request_id=name, total_s=max(0.0, unix_s(fields.get("ts")) - self._arrived.pop(name)))
        raise OtherLineError("message about something else")
