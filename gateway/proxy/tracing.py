"""Enables request tracing if OpenTelemetry's environment variables name a receiver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.proxy.request_spans import Tracing

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
SERVICE = "headway-gateway"


def tracing_wanted(environment: Mapping[str, str]) -> Tracing | None:
    """Return the tracer of requests, None if no endpoint is set or OTEL_SDK_DISABLED is true. None costs nothing."""
    disabled = environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    if disabled or not any(environment.get(name, "").strip() for name in _ENDPOINTS):
        return None
    # The SDK takes a second to import and several megabytes.
    from gateway.proxy.request_spans import Tracing

    return Tracing(SERVICE)
