"""nginx's JSON log as docs/observe.md configures it; a line is read as for observe-only pools."""

from __future__ import annotations

from typing import Any

import msgspec

from controlplane.router_audit.readers.line_fields import address, json_object, whole
from gateway.api.access_log import SkippedLineError, observation_of
from planning.router_audit.logged_request import LoggedRequest, OtherLineError, UnusableLineError


def nginx_request(line: bytes) -> LoggedRequest:
    """Return the request of one line."""
    return access_request(json_object(line))


def access_request(fields: dict[str, Any]) -> LoggedRequest:
    """Return the request of a line of an access log, by nginx's names of its fields."""
    try:
        observed = observation_of(msgspec.json.encode(fields), "-")
    except SkippedLineError as error:
        if "path" in str(error):
            raise OtherLineError("request of another path") from error
        raise UnusableLineError(f"{error}; log the fields that docs/audit-router.md lists") from error
    asked = observed["request"]
    return LoggedRequest(
        request_id=str(fields.get("request_id") or "").removeprefix("-"),
        arrived_s=observed["started_at"],
        engine=address(observed["engine"]),
        prompt_tokens=asked["prompt_tokens"],
        estimated="prompt_tokens" not in fields,
        session=asked.get("session_id", ""),
        output_tokens=observed.get("output_tokens"),
        cached_tokens=whole(observed.get("cached_tokens")),
        ttft_s=observed.get("ttft_s"),
        total_s=observed["total_s"],
        outcome=observed["outcome"],
    )
