"""nginx's JSON log as docs/observe.md configures it; a line is read as for observe-only pools."""

from __future__ import annotations

from controlplane.router_audit.readers.line_fields import address, json_object
from gateway.api.access_log import SkippedLineError, observation_of
from planning.router_audit.logged_request import LoggedRequest, OtherLineError, UnusableLineError


def nginx_request(line: bytes) -> LoggedRequest:
    """Return the request of one line."""
    fields = json_object(line)
    try:
        observed = observation_of(line, "-")
    except SkippedLineError as error:
        if "path" in str(error):
            raise OtherLineError("request of another path") from error
        raise UnusableLineError(f"{error}; use the log_format in docs/observe.md") from error
    asked = observed["request"]
    return LoggedRequest(
        request_id=str(fields.get("request_id") or ""),
        arrived_s=observed["started_at"],
        engine=address(observed["engine"]),
        prompt_tokens=asked["prompt_tokens"],
        estimated="prompt_tokens" not in fields,
        output_tokens=observed.get("output_tokens"),
        cached_tokens=observed.get("cached_tokens"),
        ttft_s=observed.get("ttft_s"),
        total_s=observed["total_s"],
        session=asked.get("session_id", ""),
        outcome=observed["outcome"],
    )
