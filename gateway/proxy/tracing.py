"""Enables OpenTelemetry if its environment variables name a receiver. What is not enabled costs nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.proxy.request_spans import Tracing
    from gateway.reports.genai_metrics import GenAiMetrics

_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
_TRACES, _METRICS = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"
_METRICS_EXPORTER = "OTEL_METRICS_EXPORTER"
SERVICE = "headway-gateway"


def tracing_wanted(environment: Mapping[str, str]) -> Tracing | None:
    """Return the tracer of requests, None if no endpoint is set or OTEL_SDK_DISABLED is true."""
    if _is_disabled(environment) or not any(environment.get(name, "").strip() for name in (_TRACES, _ENDPOINT)):
        return None
    # The SDK takes a second to import and several megabytes.
    from gateway.proxy.request_spans import Tracing

    return Tracing(SERVICE)


def genai_metrics_wanted(environment: Mapping[str, str]) -> GenAiMetrics | None:
    """Return the GenAI metrics, None unless their own endpoint is set, or OTEL_METRICS_EXPORTER is otlp and any is.

    Receivers of traces alone, such as Jaeger, would reject them.
    """
    exporter = environment.get(_METRICS_EXPORTER, "").strip().lower()
    wanted = environment.get(_METRICS, "").strip() or (exporter == "otlp" and environment.get(_ENDPOINT, "").strip())
    if _is_disabled(environment) or exporter == "none" or not wanted:
        return None
    from gateway.reports.genai_metrics import GenAiMetrics

    return GenAiMetrics(SERVICE)


def _is_disabled(environment: Mapping[str, str]) -> bool:
    return environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
