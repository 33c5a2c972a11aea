"""What a gateway counts about itself, in Prometheus' terms and with the names of the public contract."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from gateway.base.metric_families import CounterFamily, GaugeFamily, HistogramFamily

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

TTFT_BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0, 20.0, 30.0, 60.0, 120.0)
LAG_BUCKETS_S = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
DECISION_BUCKETS_S = (5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 5e-2, 0.25)


class GatewayMetrics:
    """Every series of one gateway, on a registry of its own.

    Families are called with label values in the order written here, for example
    `metrics.decisions.inc(pool_id, placement, reason)`.
    """

    def __init__(self) -> None:
        registry = CollectorRegistry()
        self.registry = registry
        self.decisions = CounterFamily(
            registry,
            "switchyard_decisions_total",
            "Engines chosen, by pool, placement and reason.",
            ("pool", "placement", "reason"),
        )
        self.requests = CounterFamily(
            registry,
            "switchyard_requests_total",
            "Requests by how they ended: completed, failed, refused, cancelled.",
            ("pool", "outcome"),
        )
        self.refusals = CounterFamily(
            registry, "switchyard_refusals_total", "Requests that got no engine, by code.", ("pool", "code")
        )
        self.grants = CounterFamily(
            registry, "switchyard_grants_total", "Requests granted an engine: at_once, after_waiting.", ("pool", "how")
        )
        self.migrations = CounterFamily(
            registry, "switchyard_migrations_total", "Moves of waiting tickets to another engine.", ("pool",)
        )
        self.prompt_tokens = CounterFamily(
            registry, "switchyard_prompt_tokens_total", "Prompt tokens of completed requests.", ("pool",)
        )
        self.cached_tokens = CounterFamily(
            registry, "switchyard_cached_tokens_total", "Cached prompt tokens as engines report them.", ("pool",)
        )
        self.predicted_tokens = CounterFamily(
            registry, "switchyard_predicted_hit_tokens_total", "Cached prompt tokens as the index predicted.", ("pool",)
        )
        self.retries = CounterFamily(
            registry,
            "switchyard_retries_total",
            "Attempts on another engine before the first byte, by cause; budget_empty: a retry that was not made.",
            ("pool", "cause"),
        )
        self.cost_samples = CounterFamily(
            registry,
            "switchyard_cost_samples_total",
            "Prefill times measured: taken, shared (other prefills ran beside it) or impossible.",
            ("pool", "result"),
        )
        self.key_sources = CounterFamily(
            registry, "switchyard_key_sources_total", "How block keys of a request were made.", ("pool", "source")
        )
        self._add_arms(registry)
        self._add_records(registry)
        self._add_refused_at_the_door(registry)
        self._add_handoffs(registry)
        self._add_engine_counters(registry)
        self._add_histograms(registry)
        self._add_gauges(registry)

    def _add_arms(self, registry: CollectorRegistry) -> None:
        self.arm_requests = CounterFamily(
            registry,
            "switchyard_arm_requests_total",
            "Requests by how they ended, while policies are compared: live, canary, control.",
            ("pool", "arm", "outcome"),
        )
        self.arm_ttft = HistogramFamily(
            registry,
            "switchyard_arm_ttft_seconds",
            "Time to first token by arm, while policies are compared.",
            ("pool", "arm"),
            TTFT_BUCKETS_S,
        )

    def _add_records(self, registry: CollectorRegistry) -> None:
        self.decision_records = CounterFamily(
            registry,
            "switchyard_decision_records_total",
            "Ended decisions: kept for the store, left_out by sampling, dropped because too many ended at once.",
            ("result",),
        )
        self.shadow_decisions = CounterFamily(
            registry,
            "switchyard_shadow_decisions_total",
            "Requests for which a shadow policy chose too, by whether it chose the same engine: yes or no.",
            ("pool", "agreed"),
        )
        self.observed = CounterFamily(
            registry,
            "switchyard_observed_requests_total",
            "Requests that others routed: accepted, late (played back out of their time), unknown_engine, "
            "out_of_service or too_many.",
            ("pool", "result"),
        )
        self.traffic_rows = CounterFamily(
            registry,
            "switchyard_traffic_rows_total",
            "Ended requests for the recordings: recorded, or dropped because too many are under way at once.",
            ("result",),
        )

    def _add_refused_at_the_door(self, registry: CollectorRegistry) -> None:
        self.rejected_input = CounterFamily(
            registry, "switchyard_rejected_input_total", "Requests refused for what they carry.", ("cause",)
        )
        self.key_limited = CounterFamily(
            registry,
            "switchyard_key_limited_total",
            "Requests refused because their API key is at its limit: rate or in_flight.",
            ("reason",),
        )

    def _add_handoffs(self, registry: CollectorRegistry) -> None:
        self.handoffs = CounterFamily(
            registry,
            "switchyard_handoffs_total",
            "Attempts on a pair of engines: done, prefill_failed, decode_failed, decode_lost, cancelled; alone: the "
            "decode engine computed the prompt itself.",
            ("pool", "outcome"),
        )
        self.handoff_seconds = HistogramFamily(
            registry,
            "switchyard_handoff_seconds",
            "From a prefill engine's end to the first token of its decode engine.",
            ("pool",),
            TTFT_BUCKETS_S,
        )

    def _add_engine_counters(self, registry: CollectorRegistry) -> None:
        self.kv_events = CounterFamily(
            registry, "switchyard_kv_events_total", "KV events taken in, by engine and type.", ("engine", "type")
        )
        self.kv_event_gaps = CounterFamily(
            registry, "switchyard_kv_event_gaps_total", "Gaps in an engine's event sequence.", ("engine",)
        )
        self.kv_events_unreadable = CounterFamily(
            registry, "switchyard_kv_events_unreadable_total", "Event batches that could not be read.", ("engine",)
        )
        self.unreadable_reports = CounterFamily(
            registry, "switchyard_unreadable_reports_total", "Load reports of engines that were refused.", ("engine",)
        )
        self.breaker_trips = CounterFamily(
            registry, "switchyard_breaker_trips_total", "Times a breaker opened, by cause.", ("engine", "cause")
        )

    def _add_histograms(self, registry: CollectorRegistry) -> None:
        self.ttft = HistogramFamily(
            registry,
            "switchyard_ttft_seconds",
            "Time to first token as clients of this gateway see it.",
            ("pool",),
            TTFT_BUCKETS_S,
        )
        self.queue_wait = HistogramFamily(
            registry, "switchyard_queue_wait_seconds", "Time a ticket waited at the gateway.", ("pool",), TTFT_BUCKETS_S
        )
        self.decision_seconds = HistogramFamily(
            registry,
            "switchyard_decision_seconds",
            "Time of the deciding call itself, without waiting.",
            ("pool",),
            DECISION_BUCKETS_S,
        )

        self.loop_lag = HistogramFamily(
            registry,
            "switchyard_loop_lag_seconds",
            "How much too late the event loop came back to a timer of 0.1 s.",
            (),
            LAG_BUCKETS_S,
        )

    def _add_gauges(self, registry: CollectorRegistry) -> None:
        self.outstanding_tokens = GaugeFamily(
            registry, "switchyard_outstanding_tokens", "Uncached prompt tokens bound to or running on it.", ("engine",)
        )
        self.queue_tickets = GaugeFamily(
            registry, "switchyard_queue_tickets", "Requests that wait at the gateway.", ("pool",)
        )
        self.load_cv = GaugeFamily(
            registry,
            "switchyard_load_cv",
            "Coefficient of variation of pending prefill tokens over serving engines.",
            ("pool",),
        )
        self.engine_state = GaugeFamily(
            registry, "switchyard_engine_state", "1 for the state an engine is in, else 0.", ("engine", "state")
        )
        self.index_bytes = GaugeFamily(
            registry, "switchyard_index_bytes", "Bytes that the pool's prefix index uses.", ("pool",)
        )
        self.gateway_late = Gauge(
            "switchyard_gateway_late",
            "1 while this gateway's own loop is late, so that its time-outs condemn no engine, else 0.",
            registry=registry,
        )
        self.snapshot_version = Gauge(
            "switchyard_snapshot_version", "Version of the topology snapshot being served.", registry=registry
        )

    def render(self) -> bytes:
        """Return all series in the Prometheus text format."""
        return generate_latest(self.registry)
