"""Envoy's access log: the default format, or JSON with the keys of Envoy Gateway or Istio.

Source: envoyproxy/envoy, docs/root/configuration/observability/access_log/usage.rst ("Default Format String");
envoyproxy/gateway and istio/istio, their default JSON formats.
"""

from __future__ import annotations

import re
from typing import Any

from controlplane.router_audit.readers.line_fields import json_object, milliseconds, number, unix_s
from controlplane.router_audit.readers.nginx_log import access_request
from gateway.api.access_log import OVERHEAD_BYTES
from planning.router_audit.logged_request import LoggedRequest, UnusableLineError

_DEFAULT = re.compile(
    r'\[(?P<start_time>[^\]]+)\] "\S+ (?P<path>\S+) [^"]*" (?P<response_code>\d+) \S+ (?P<bytes_received>\d+) \d+ '
    r'(?P<duration>\d+) \S+ "[^"]*" "[^"]*" "(?P<request_id>[^"]*)" "[^"]*" "(?P<upstream_host>[^"]*)"'
)
_NAMES = {"path": ("path", "x-envoy-origin-path", ":path"), "request_id": ("request_id", "x-request-id")}
_EXTRA = ("session", "prompt_tokens", "output_tokens", "cached_tokens", "ttft")


def envoy_request(line: bytes) -> LoggedRequest:
    """Return the request of one line, read like nginx's."""
    fields: dict[str, Any]
    if line.lstrip().startswith(b"{"):
        fields = json_object(line)
    elif (matched := _DEFAULT.search(line.decode(errors="replace"))) is not None:
        fields = matched.groupdict()
    else:
        raise UnusableLineError("neither Envoy's default format nor JSON")
    for name, keys in _NAMES.items():
        fields[name] = next((fields[key] for key in keys if fields.get(key)), "")
    total_s = milliseconds(fields.get("duration"))
    return access_request(
        {
            "time": None if total_s is None else unix_s(fields.get("start_time")) + total_s,
            "request_time": total_s,
            "uri": fields["path"],
            "status": fields.get("response_code"),
            "upstream": str(fields.get("upstream_host") or "").removeprefix("tcp://"),
            "request_id": fields["request_id"],
            # Envoy counts bodies alone.
            "request_length": (number(fields.get("bytes_received")) or 0.0) + OVERHEAD_BYTES,
            **{name: fields[name] for name in _EXTRA if name in fields},
        }
    )
