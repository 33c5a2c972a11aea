"""OpenTelemetry's GenAI metrics of requests, sent by OTLP over HTTP.

Import it only if they are wanted (gateway.proxy.tracing). Names, units, bounds and attributes follow the GenAI semantic
conventions (open-telemetry/semantic-conventions-genai, docs/gen-ai/gen-ai-metrics.md).
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import TYPE_CHECKING

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as names
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics
from opentelemetry.semconv.attributes.error_attributes import ERROR_TYPE
from typing_extensions import override

from gateway.base.metric_families import BoundedLabels
from gateway.pools.engines.live_engine import UNKNOWN
from gateway.pools.pool.request_listener import RequestListener
from gateway.pools.traffic.traffic_window import COMPLETED

if TYPE_CHECKING:
    from gateway.pools.pool.recent_decisions import DecisionRecord

_DURATION_S = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_FIRST_S = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
_TOKEN_S = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
_TOKENS = tuple(float(4**power) for power in range(14))
_OF_INPUT = {names.GEN_AI_TOKEN_TYPE: "input"}
_OF_OUTPUT = {names.GEN_AI_TOKEN_TYPE: "output"}


FLUSH_S = 2.0
"""Seconds that the process waits at its end for the delivery of the last spans or metrics."""


def resource_of(default_service: str) -> Resource:
    """Return the environment's resource, with this service name if the environment sets none."""
    resource = Resource.create()
    if str(resource.attributes.get("service.name", "")).startswith("unknown_service"):
        resource = resource.merge(Resource({"service.name": default_service}))
    return resource


def shut_down(provider_shutdown: Callable[[], object], what: str) -> None:
    """Send the last `what`, if the receiver accepts them in time."""
    # The exporter's own time-out is far longer than the end of a process may take.
    last = Thread(target=provider_shutdown, name=f"last {what}", daemon=True)
    last.start()
    last.join(FLUSH_S)


class GenAiMetrics(RequestListener):
    """Records each request that had an engine once, at its end. The SDK sends the sums from a separate thread."""

    def __init__(self, default_service: str) -> None:
        """`default_service` is the service name if the environment sets none."""
        reader = PeriodicExportingMetricReader(OTLPMetricExporter())
        self._provider = MeterProvider([reader], resource_of(default_service), shutdown_on_exit=False)
        meter = self._provider.get_meter("headway.gateway")

        def histogram(name: str, unit: str, bounds: tuple[float, ...]) -> Histogram:
            return meter.create_histogram(name, unit, explicit_bucket_boundaries_advisory=bounds)  # type: ignore[return-value]

        self._duration = histogram(gen_ai_metrics.GEN_AI_SERVER_REQUEST_DURATION, "s", _DURATION_S)
        self._first = histogram(gen_ai_metrics.GEN_AI_SERVER_TIME_TO_FIRST_TOKEN, "s", _FIRST_S)
        self._per_token = histogram(gen_ai_metrics.GEN_AI_SERVER_TIME_PER_OUTPUT_TOKEN, "s", _TOKEN_S)
        self._tokens = histogram(gen_ai_metrics.GEN_AI_CLIENT_TOKEN_USAGE, "{token}", _TOKENS)
        self._models = BoundedLabels()

    def flush(self) -> None:
        """Send all sums, and wait for the receiver."""
        self._provider.force_flush()

    def close(self) -> None:
        """Send the last sums, if the receiver accepts them in time."""
        shut_down(self._provider.shutdown, "metrics")

    @override
    def ended(self, record: DecisionRecord, now: float) -> None:
        decision, pool = record.decision, record.pool
        if not decision.engine_id:
            return
        engine = pool.engines.get(decision.engine_id if decision.pair is None else decision.pair.engine_id)
        pool_id, model = self._models.of(decision.pool_id, record.model_name)
        attributes = {
            names.GEN_AI_OPERATION_NAME: record.operation,
            names.GEN_AI_PROVIDER_NAME: UNKNOWN if engine is None else engine.provider,
            names.GEN_AI_REQUEST_MODEL: model,
            "headway.pool.id": pool_id,
        }
        if record.outcome != COMPLETED:
            self._duration.record(now - record.arrived_s, {**attributes, ERROR_TYPE: record.error})
            return
        self._duration.record(now - record.arrived_s, attributes)
        if record.ttft_s is not None:
            self._first.record(record.ttft_s, attributes)
        if record.tpot_s is not None:
            self._per_token.record(record.tpot_s, attributes)
        self._tokens.record(record.engine_prompt_tokens or decision.prompt_tokens, {**attributes, **_OF_INPUT})
        if record.output_tokens is not None:
            self._tokens.record(record.output_tokens, {**attributes, **_OF_OUTPUT})
