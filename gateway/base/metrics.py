"""A gateway's Prometheus metrics, under the names of the public contract."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics

from gateway.base.metric_families import BoundedLabels, CounterFamily, GaugeFamily, HistogramFamily

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text"

TTFT_BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0, 20.0, 30.0, 60.0, 120.0)
LAG_BUCKETS_S = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
TPOT_BUCKETS_S = (
    0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5
)  # fmt: skip
E2E_BUCKETS_S = (0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
DECISION_BUCKETS_S = (5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 5e-2, 0.25)

_OF_MODEL = ("pool", "model_name")
"""Labels of what is counted by model. The name is the one that the request used: a served model, alias or adapter."""


class GatewayMetrics:
    """All metrics of one gateway, in a separate registry.

    Call a family with label values in the order written here, for example `metrics.decisions.inc(pool_id, placement,
    reason)`.
    """

    def __init__(self) -> None:
        registry = CollectorRegistry()
        self.registry = registry
        self.models = BoundedLabels()
        """Label values of (pool id, model name)."""
        self.decisions = CounterFamily(
            registry,
            "headway_decisions_total",
            "Engines chosen, by pool, placement and reason.",
            ("pool", "placement", "reason"),
        )
        self.requests = CounterFamily(
            registry,
            "headway_requests_total",
            "Requests by outcome: completed, failed, rejected, cancelled.",
            ("pool", "outcome"),
        )
        self.rejections = CounterFamily(
            registry, "headway_rejections_total", "Rejected requests, by code.", ("pool", "code")
        )
        self.dispatches = CounterFamily(
            registry,
            "headway_dispatches_total",
            "Requests dispatched to an engine: at_once, after_waiting.",
            ("pool", "how"),
        )
        self.migrations = CounterFamily(
            registry, "headway_migrations_total", "Queued requests moved to another engine.", ("pool",)
        )
        self.retries = CounterFamily(
            registry,
            "headway_retries_total",
            "Retries on another engine before the first byte, by cause; budget_empty: the retry budget allowed none.",
            ("pool", "cause"),
        )
        self.cost_samples = CounterFamily(
            registry,
            "headway_cost_samples_total",
            "Measured prefill times: taken (used), shared (with other prefills) or impossible.",
            ("pool", "result"),
        )
        self.key_sources = CounterFamily(
            registry, "headway_key_sources_total", "Source of a request's block keys.", ("pool", "source")
        )
        self._add_tokens(registry)
        self._add_usage(registry)
        self._add_owners(registry)
        self._add_arms(registry)
        self._add_records(registry)
        self._add_rejected_at_the_door(registry)
        self._add_handoffs(registry)
        self._add_loads(registry)
        self._add_engine_counters(registry)
        self._add_histograms(registry)
        self._add_gauges(registry)

    def _add_tokens(self, registry: CollectorRegistry) -> None:
        self.prompt_tokens = CounterFamily(
            registry, "headway_prompt_tokens_total", "Prompt tokens of completed requests.", _OF_MODEL
        )
        self.cached_tokens = CounterFamily(
            registry, "headway_cached_tokens_total", "Cached prompt tokens reported by engines.", _OF_MODEL
        )
        self.predicted_tokens = CounterFamily(
            registry, "headway_predicted_hit_tokens_total", "Cached prompt tokens predicted by the index.", _OF_MODEL
        )
        self.output_tokens = CounterFamily(
            registry, "headway_output_tokens_total", "Output tokens of completed requests, as reported.", _OF_MODEL
        )

    def _add_usage(self, registry: CollectorRegistry) -> None:
        self.usage_waiting = GaugeFamily(
            registry, "headway_usage_entries_waiting", "Usage entries that the control plane has not confirmed.", ()
        )
        self.usage_lost = GaugeFamily(
            registry, "headway_usage_entries_lost", "Usage entries dropped because the journal was full.", ()
        )
        self.budget_used = GaugeFamily(
            registry,
            "headway_budget_used_ratio",
            "Used share of each budget in its window, 1 at its amount.",
            ("budget",),
        )
        self.budget_rejections = CounterFamily(
            registry,
            "headway_budget_rejections_total",
            "Requests that a budget rejected (hard) or would have rejected (shadow).",
            ("budget", "mode"),
        )

    def _add_owners(self, registry: CollectorRegistry) -> None:
        self.owner_epoch = GaugeFamily(
            registry,
            "headway_pool_owner_epoch",
            "Epoch of the pool's queue owner known to this gateway; 0: there was no owner.",
            ("pool",),
        )
        self.owner_asks = CounterFamily(
            registry,
            "headway_owner_requests_total",
            "Requests sent to the pool's queue owner: answered, withdrawn; late, rejected, unreachable: decided "
            "without it or sent again.",
            ("pool", "outcome"),
        )

        self._add_services(registry)

    def _add_services(self, registry: CollectorRegistry) -> None:
        self.service_overflows = CounterFamily(
            registry,
            "headway_service_overflows_total",
            "Requests that a pool of a service did not serve and the next pool or the provider got, by reason.",
            ("service", "pool", "reason"),
        )
        self.provider_requests = CounterFamily(
            registry,
            "headway_provider_requests_total",
            "Requests that a service's provider got, by outcome: completed, failed, cancelled, client_error; "
            "unanswered: it failed before its answer.",
            ("service", "outcome"),
        )
        self.provider_tokens = CounterFamily(
            registry,
            "headway_provider_tokens_total",
            "Tokens of providers' completed answers, by kind: prompt, output.",
            ("service", "kind"),
        )
        self.provider_cost = CounterFamily(
            registry,
            "headway_provider_cost_dollars_total",
            "Cost of providers' completed answers by the service's prices.",
            ("service",),
        )

    def _add_arms(self, registry: CollectorRegistry) -> None:
        self.arm_requests = CounterFamily(
            registry,
            "headway_trial_requests_total",
            "Requests by outcome while policies are compared: live, canary, control.",
            ("pool", "arm", "outcome"),
        )
        self.arm_ttft = HistogramFamily(
            registry,
            "headway_trial_ttft_seconds",
            "Time to first token by arm, while policies are compared.",
            ("pool", "arm"),
            TTFT_BUCKETS_S,
        )

    def _add_records(self, registry: CollectorRegistry) -> None:
        self.decision_records = CounterFamily(
            registry,
            "headway_decision_records_total",
            "Completed decisions: kept for the store, left_out by sampling, dropped because too many ended together.",
            ("result",),
        )
        self.shadow_decisions = CounterFamily(
            registry,
            "headway_shadow_decisions_total",
            "Requests compared by a shadow policy, by whether it chose the same engine: yes or no.",
            ("pool", "agreed"),
        )
        self.observed = CounterFamily(
            registry,
            "headway_observed_requests_total",
            "Observed requests: accepted, late (replayed out of order), unknown_engine, out_of_service or too_many.",
            ("pool", "result"),
        )
        self.traffic_rows = CounterFamily(
            registry,
            "headway_traffic_rows_total",
            "Requests for recordings: recorded, or dropped because too many are in flight.",
            ("result",),
        )

    def _add_rejected_at_the_door(self, registry: CollectorRegistry) -> None:
        self.proxied = CounterFamily(
            registry, "headway_proxied_requests_total", "Requests to the proxy, by path.", ("pool", "path")
        )
        self.rejected_input = CounterFamily(
            registry, "headway_rejected_input_total", "Requests rejected for their content.", ("cause",)
        )
        self.peer_connections_rejected = CounterFamily(
            registry,
            "headway_peer_connections_rejected_total",
            "Connections to the peers' port that were closed: unproved, late, displaced by newer ones, large_head; "
            "crowded: too many are open.",
            ("cause",),
        )
        self.rejected_snapshots = CounterFamily(
            registry,
            "headway_rejected_snapshots_total",
            "Published snapshots that this gateway rejected: older than one it served, or unreadable.",
            ("cause",),
        )
        self.key_limited = CounterFamily(
            registry,
            "headway_key_limited_total",
            "Requests rejected because their API key is at its limit: rate or in_flight.",
            ("reason",),
        )

    def _add_handoffs(self, registry: CollectorRegistry) -> None:
        self.forwards = CounterFamily(
            registry,
            "headway_forwards_total",
            "Requests sent to another region, by region and outcome: completed, failed, cancelled, client_error.",
            ("region", "outcome"),
        )
        self.handoffs = CounterFamily(
            registry,
            "headway_handoffs_total",
            "Attempts on a pair of engines: done, prefill_failed, decode_failed, decode_lost, cancelled; alone: the "
            "decode engine computed the prompt itself.",
            ("pool", "outcome"),
        )
        self.handoff_seconds = HistogramFamily(
            registry,
            "headway_handoff_seconds",
            "Seconds from the end of the prefill to the decode engine's first token.",
            ("pool",),
            TTFT_BUCKETS_S,
        )

    def _add_loads(self, registry: CollectorRegistry) -> None:
        self.kv_loads = CounterFamily(
            registry,
            "headway_kv_loads_total",
            "Loads from node managers by result: whole, partial, missing, late, failed; untold: the "
            "engine reported none, and none can be inferred.",
            ("pool", "outcome"),
        )
        self.advisories = CounterFamily(
            registry,
            "headway_advisories_total",
            "Advisories by outcome: useful, late, spurious, overruled, withdrawn, replaced, unknown, shed, "
            "ignored, forwarded.",
            ("pool", "outcome"),
        )
        self.engine_prefetches = CounterFamily(
            registry,
            "headway_engine_prefetches_total",
            "Prefetches into engine memory for advisories: loaded, nothing, failed; dropped: not begun.",
            ("pool", "outcome"),
        )
        self.kv_loaded_bytes = CounterFamily(
            registry,
            "headway_kv_loaded_bytes_total",
            "Bytes of KV that engines loaded from node managers.",
            ("pool",),
        )
        self.kv_saved_tokens = CounterFamily(
            registry, "headway_kv_saved_tokens_total", "Prompt tokens loaded instead of computed.", ("pool",)
        )
        self.kv_moves = CounterFamily(
            registry,
            "headway_kv_moves_total",
            "Moves of KV blocks between nodes, by planner (prefetch, advisory, replicate) and outcome: moved, "
            "missing, failed, late; dropped: not begun.",
            ("planner", "outcome"),
        )
        self.kv_move_saved_tokens = CounterFamily(
            registry,
            "headway_kv_move_saved_tokens_total",
            "Prompt tokens that engines loaded from moved copies.",
            ("planner",),
        )
        self.kv_move_useless = CounterFamily(
            registry,
            "headway_kv_moves_useless_total",
            "Moves whose copies were evicted or grew old without a load.",
            ("planner",),
        )
        self.kv_node_followed = GaugeFamily(
            registry,
            "headway_kv_node_followed",
            "1 while the node manager's contents are known; 0: degraded, it counts as empty.",
            ("node",),
        )
        self.kv_node_blocks = GaugeFamily(
            registry, "headway_kv_node_blocks", "Blocks that the node manager is known to hold.", ("node",)
        )

    def _add_engine_counters(self, registry: CollectorRegistry) -> None:
        self.kv_events = CounterFamily(
            registry, "headway_kv_events_total", "KV events received, by engine and type.", ("engine", "type")
        )
        self.kv_event_gaps = CounterFamily(
            registry, "headway_kv_event_gaps_total", "Gaps in an engine's event sequence.", ("engine",)
        )
        self.kv_events_unreadable = CounterFamily(
            registry, "headway_kv_events_unreadable_total", "Unreadable event batches.", ("engine",)
        )
        self.unreadable_reports = CounterFamily(
            registry, "headway_unreadable_reports_total", "Rejected load reports of engines.", ("engine",)
        )
        self.breaker_trips = CounterFamily(
            registry, "headway_breaker_trips_total", "Circuit breaker trips, by cause.", ("engine", "cause")
        )

    def _add_histograms(self, registry: CollectorRegistry) -> None:
        self.ttft = HistogramFamily(
            registry,
            "headway_ttft_seconds",
            "Time to first token for clients of this gateway.",
            _OF_MODEL,
            TTFT_BUCKETS_S,
        )
        self.tpot = HistogramFamily(
            registry,
            "headway_tpot_seconds",
            "Mean time per output token after the first, per completed request whose first token was seen.",
            _OF_MODEL,
            TPOT_BUCKETS_S,
        )
        self.itl = HistogramFamily(
            registry,
            "headway_itl_seconds",
            "Time between two chunks of a proxied stream, on one stream in 16.",
            _OF_MODEL,
            TPOT_BUCKETS_S,
        )
        self.e2e = HistogramFamily(
            registry,
            "headway_e2e_seconds",
            "Time from arrival to the end of the answer, per completed request.",
            _OF_MODEL,
            E2E_BUCKETS_S,
        )
        self.queue_wait = HistogramFamily(
            registry,
            "headway_queue_wait_seconds",
            "Time a request waited at the gateway.",
            _OF_MODEL,
            TTFT_BUCKETS_S,
        )
        self.decision_seconds = HistogramFamily(
            registry,
            "headway_decision_seconds",
            "Duration of the decision, without waiting.",
            ("pool",),
            DECISION_BUCKETS_S,
        )

        self.loop_lag = HistogramFamily(
            registry,
            "headway_loop_lag_seconds",
            "Delay of the event loop on a 0.1 s timer.",
            (),
            LAG_BUCKETS_S,
        )

    def _add_gauges(self, registry: CollectorRegistry) -> None:
        self.in_flight_tokens = GaugeFamily(
            registry, "headway_in_flight_tokens", "Uncached prompt tokens in flight at the engine.", ("engine",)
        )
        self.queued_requests = GaugeFamily(
            registry, "headway_queued_requests", "Requests queued at the gateway.", ("pool",)
        )
        self.load_cv = GaugeFamily(
            registry,
            "headway_load_cv",
            "Coefficient of variation of pending prefill tokens over serving engines.",
            ("pool",),
        )
        self.engine_state = GaugeFamily(
            registry, "headway_engine_state", "1 for the engine's current state, else 0.", ("engine", "state")
        )
        self.rejected_keys = GaugeFamily(
            registry, "headway_engine_rejects_key", "1 while the engine rejects this gateway's key.", ("engine",)
        )
        self.index_trust = GaugeFamily(
            registry,
            "headway_index_trust",
            "Trust in the engine's prefix index: 1 exact, 0.5 degraded, 0 blind.",
            ("engine",),
        )
        self.tier_blocks = GaugeFamily(
            registry,
            "headway_index_tier_blocks",
            "Blocks in the engine's lower tiers: cpu, disk, external.",
            ("engine", "tier"),
        )
        self.load_seconds = GaugeFamily(
            registry,
            "headway_engine_load_seconds",
            "Learned seconds to load one token from a tier, or one LoRA adapter (adapter); 0 until learned.",
            ("engine", "what"),
        )
        self.index_bytes = GaugeFamily(
            registry, "headway_index_bytes", "Bytes that the pool's prefix index uses.", ("pool",)
        )
        self.gateway_late = Gauge(
            "headway_gateway_late",
            "1 while this gateway is late and blames no engine for timeouts, else 0.",
            registry=registry,
        )
        self.snapshot_version = Gauge(
            "headway_snapshot_version", "Version of the topology snapshot in use.", registry=registry
        )

    def render(self) -> bytes:
        """Return all series in the Prometheus text format."""
        return generate_latest(self.registry)

    def negotiated(self, accepted: str) -> tuple[bytes, str]:
        """Return (all series, their content type) for an Accept header. Only OpenMetrics has exemplars."""
        if OPENMETRICS in accepted:
            text: bytes = openmetrics.generate_latest(self.registry)  # type: ignore[no-untyped-call]
            return text, openmetrics.CONTENT_TYPE_LATEST
        return self.render(), CONTENT_TYPE
