"""OpenTelemetry spans of proxied requests: the request, its decision, its queue wait, each attempt at an engine.

Import it only if spans are wanted (gateway.proxy.tracing). Names and attributes follow the HTTP and GenAI semantic
conventions, with `headway.*` for our own facts. An attempt is the inference span, with what its engine answered; the
request's span has the facts of routing, so that no receiver counts tokens twice. They never contain prompts, answers or
keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from time import monotonic, monotonic_ns, time_ns
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as names
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from gateway.pools.engines.live_engine import UNKNOWN
from gateway.pools.traffic.traffic_window import FAILED
from gateway.proxy.attempt import AttemptFailure
from gateway.reports.genai_metrics import resource_of, shut_down
from gateway.requests.caller_facts import TRACE
from gateway.requests.formats.endpoints import Endpoint
from gateway.requests.formats.engine_answer import AnswerFacts
from gateway.server.http.openai_error import ApiError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gateway.pools.engines.live_engine import LiveEngine
    from gateway.pools.pool.live_pool import LivePool
    from gateway.pools.pool.recent_decisions import DecisionRecord
    from gateway.server.http.request_head import RequestHead

_NS = 1e9
_propagator = TraceContextTextMapPropagator()


class TracedExchange(Protocol):
    """What spans contain of an exchange with a client. Exchange implements it."""

    @property
    def head(self) -> RequestHead: ...
    @property
    def decision_id(self) -> str: ...
    @property
    def status(self) -> int: ...


class Tracing:
    """Creates traces and sends them by OTLP over HTTP from a separate thread, with OpenTelemetry's own settings."""

    def __init__(self, default_service: str) -> None:
        """`default_service` is the service name if the environment sets none."""
        self._provider = TracerProvider(resource=resource_of(default_service), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("headway.gateway")

    def request(self, exchange: TracedExchange, endpoint: Endpoint, pool: LivePool, arrived_s: float) -> RequestSpans:
        """Begin the spans of one request. They continue the client's trace, if it has one."""
        return RequestSpans(self._tracer, exchange, endpoint, pool, arrived_s)

    def flush(self) -> None:
        """Send ended spans, and wait for the receiver."""
        self._provider.force_flush()

    def close(self) -> None:
        """Send the last spans, if the receiver accepts them in time."""
        shut_down(self._provider.shutdown, "spans")


class RequestSpans:
    """The spans of one request, ended on exit. Mutable: the latest decision, and the attempts."""

    def __init__(
        self, tracer: Tracer, exchange: TracedExchange, endpoint: Endpoint, pool: LivePool, arrived_s: float
    ) -> None:
        headers = exchange.head.headers
        carrier = {name.decode(): headers[name].decode("latin-1") for name in TRACE if name in headers}
        parent = _propagator.extract(carrier)
        self._tracer = tracer
        self._exchange = exchange
        self._operation, self._pool = endpoint.operation, pool
        self._unix_ns = time_ns() - monotonic_ns()
        self._attempts = 0
        self._record: DecisionRecord | None = None
        attributes: dict[str, Any] = {
            "http.request.method": "POST",
            "http.route": endpoint.path,
            "url.path": endpoint.path,
            "headway.model": pool.entry.served_model,
            "headway.pool.id": pool.entry.pool_id,
        }
        if exchange.head.given:
            # As OpenTelemetry names the header of a request.
            attributes["http.request.header.x-request-id"] = [exchange.head.request_id]
        self._root = tracer.start_span(
            f"POST {endpoint.path}", parent, SpanKind.SERVER, attributes, start_time=self._at(arrived_s)
        )
        self._context = set_span_in_context(self._root, parent)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(error)

    def _end(self, error: BaseException | None) -> None:
        root, record = self._root, self._record
        status = error.status if isinstance(error, ApiError) else self._exchange.status
        if self._exchange.decision_id:
            root.set_attribute("headway.decision.id", self._exchange.decision_id)
        if status:
            root.set_attribute("http.response.status_code", status)
        if cause := _cause(error, record):
            root.set_attribute("error.type", cause)
        if status >= 500 or (record is not None and record.outcome == FAILED):
            root.set_status(StatusCode.ERROR)
        root.end()

    def came_by(self, door: str) -> None:
        """Record which proxy sends the request, which the gateway does not see."""
        self._root.set_attribute("headway.door", door)

    def first_token(self, at_s: float) -> None:
        """Record the reported first token."""
        self._root.add_event("first_token", timestamp=self._at(at_s))

    def ended(self, record: DecisionRecord | None) -> None:
        """End the spans of a request whose outcome was reported, or is unknown."""
        self._record = record
        if record is not None:
            # No attempt of this gateway, so this span is the only one of the inference.
            engine = record.pool.engines.get(record.decision.engine_id)
            self._root.set_attributes(self._inference(engine))
            _set_usage(self._root, record)
        self._end(None)

    def decided(self, record: DecisionRecord) -> None:
        """Record the request's engine, and the durations of the decision and of the dispatch."""
        self._record, decision = record, record.decision
        attributes: dict[str, Any] = {
            "headway.decision.id": decision.decision_id,
            "headway.engine.id": decision.engine_id,
            "headway.placement": decision.placement,
            "headway.reason": decision.reason,
            "headway.key_source": record.key_source,
            "headway.prompt_tokens": decision.prompt_tokens,
            "headway.hit_tokens": decision.hit_tokens,
            "headway.policy.version": decision.policy_version,
        }
        self._root.set_attributes({**attributes, "headway.queued_s": decision.queued_s})
        asked_s = decision.decided_s if record.asked_s is None or self._attempts else record.asked_s
        self._past("decision", min(asked_s, decision.decided_s), decision.decided_s, attributes)
        dispatched_s = record.arrived_s + decision.queued_s
        if dispatched_s > decision.decided_s and not self._attempts:
            self._past("queue", decision.decided_s, dispatched_s, {"headway.reason": decision.queue_reason})

    @contextmanager
    def attempt(self, engine: LiveEngine | None) -> Iterator[AttemptSpan]:
        """Trace one attempt at an engine, including all messages for it."""
        self._attempts += 1
        attributes: dict[str, str | int] = {
            "http.request.method": "POST",
            "http.request.resend_count": self._attempts - 1,
            **self._inference(engine),
        }
        if engine is not None:
            url = urlsplit(engine.entry.url)
            attributes["headway.engine.id"] = engine.entry.engine_id
            attributes["server.address"] = url.hostname or ""
            attributes["server.port"] = url.port or (443 if url.scheme == "https" else 80)
        begun_s = monotonic()
        name = f"{self._operation} {attributes[names.GEN_AI_REQUEST_MODEL]}"
        span = self._tracer.start_span(name, self._context, SpanKind.CLIENT, attributes)
        before_s = self._record.first_token_s if self._record is not None else None
        attempt = AttemptSpan(span)
        try:
            yield attempt
        finally:
            attempt.set_facts()
            if self._record is not None:
                _set_usage(span, self._record)
                first_s = self._record.first_token_s
                if first_s is not None and before_s is None:
                    span.set_attribute(names.GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK, max(0.0, first_s - begun_s))
                    span.add_event("first_token", timestamp=self._at(first_s))
            span.end()

    def _inference(self, engine: LiveEngine | None) -> dict[str, str]:
        """Return what identifies the inference, before its answer."""
        model = self._pool.entry.served_model if self._record is None else self._record.model_name
        return {
            names.GEN_AI_OPERATION_NAME: self._operation,
            names.GEN_AI_REQUEST_MODEL: model,
            names.GEN_AI_PROVIDER_NAME: UNKNOWN if engine is None else engine.provider,
        }

    def carried(self) -> dict[str, str]:
        """Return the headers that continue the trace in messages for the complete request."""
        return _carried(self._root)

    def _past(self, name: str, begun_s: float, ended_s: float, attributes: Mapping[str, Any]) -> None:
        span = self._tracer.start_span(name, self._context, attributes=attributes, start_time=self._at(begun_s))
        span.end(self._at(ended_s))

    def _at(self, moment_s: float) -> int:
        return self._unix_ns + int(moment_s * _NS)


class AttemptSpan:
    """The span of a running attempt."""

    def __init__(self, span: Span) -> None:
        self._span = span
        self.headers = _carried(span)
        """Headers that continue the trace at the engine."""
        self.facts = AnswerFacts()
        """Filled in while the answer is relayed."""

    def set_facts(self) -> None:
        """Record what the engine stated about its answer."""
        facts = self.facts
        for name, value in (
            (names.GEN_AI_RESPONSE_ID, facts.response_id),
            (names.GEN_AI_RESPONSE_MODEL, facts.model),
            (names.GEN_AI_RESPONSE_FINISH_REASONS, facts.finish_reasons),
        ):
            if value:
                self._span.set_attribute(name, value)

    def failed(self, failure: AttemptFailure) -> None:
        """Record that the attempt gave no answer."""
        self._span.set_attribute("error.type", failure.kind)
        if failure.status:
            self._span.set_attribute("http.response.status_code", failure.status)
        self._span.set_status(StatusCode.ERROR)


def _cause(error: BaseException | None, record: DecisionRecord | None) -> str:
    """Return the error type, empty if there was none."""
    if isinstance(error, ApiError):
        return error.code
    if record is not None and record.outcome:
        # A client that is gone by the end of its answer had all of it.
        return record.error
    return "" if error is None else type(error).__name__


def _carried(span: Span) -> dict[str, str]:
    headers: dict[str, str] = {}
    _propagator.inject(headers, set_span_in_context(span))
    return headers


def _set_usage(span: Span, record: DecisionRecord) -> None:
    usage = {
        names.GEN_AI_USAGE_INPUT_TOKENS: record.engine_prompt_tokens,
        names.GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS: record.cached_tokens,
        names.GEN_AI_USAGE_OUTPUT_TOKENS: record.output_tokens,
    }
    span.set_attributes({name: value for name, value in usage.items() if value is not None})
