"""The engine's Prometheus metrics under vLLM 0.32's names and labels."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector, generate_latest
from prometheus_client.metrics import MetricWrapperBase

from simulator.engine_models.fifo_engine import EngineModel
from simulator.engine_server.node_store.node_store import NodeStore
from simulator.engine_server.settings import EngineSettings

_Metric = TypeVar("_Metric", bound=MetricWrapperBase)

_LABELS = ("model_name", "engine")
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0)
_TOKEN_SECONDS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5)
_TOKENS = (1, 10, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 200_000)
_BATCH_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 4096, 16_384, 65_536)


class SimulatedEngineMetrics:
    """All metrics of one engine, in a separate registry. Times are real seconds, as clients measure them."""

    def __init__(self, settings: EngineSettings, model: EngineModel) -> None:
        self._registry = CollectorRegistry()
        self._labels = (settings.served_model, str(settings.rank))
        self._lora: Gauge | None = None
        # Gateways see a restart by process_start_time_seconds.
        ProcessCollector(registry=self._registry)
        self._describe_cache(settings)
        self._watch(model)
        self._count_tokens()
        self._time_requests()
        self._count_transfers()
        self.rejections = Counter(
            "vllm:admission_rejections", "Requests rejected at the door.", (*_LABELS, "reason"), registry=self._registry
        )
        success = Counter(
            "vllm:request_success", "Finished requests.", (*_LABELS, "finished_reason"), registry=self._registry
        )
        self.success = {reason: success.labels(*self._labels, reason) for reason in ("stop", "length", "abort")}

    def reject(self, reason: str) -> None:
        """Count a request that was rejected for `reason`."""
        self.rejections.labels(*self._labels, reason).inc()

    def loaded(self, prompt_tokens: int) -> None:
        """Count a prompt whose KV was loaded from another engine."""
        self.external_queries.inc(prompt_tokens)
        # The last token is always computed.
        self.external_hits.inc(prompt_tokens - 1)
        self.sources["external_kv_transfer"].inc(prompt_tokens - 1)
        self.sources["local_compute"].inc()
        self.prompt_tokens.inc(prompt_tokens)
        self.prompt_length.observe(prompt_tokens)
        self.computed_length.observe(1)

    def external(self, wanted_tokens: int, came_tokens: int) -> None:
        """Count prompt tokens requested from nodes, and the tokens that arrived."""
        self.external_queries.inc(wanted_tokens)
        self.external_hits.inc(came_tokens)

    def prompt(self, prompt_tokens: int, cached_tokens: int) -> None:
        """Count a prompt when its prefill starts."""
        self.sources["local_cache_hit"].inc(cached_tokens)
        self.sources["local_compute"].inc(prompt_tokens - cached_tokens)
        self.prefix_queries.inc(prompt_tokens)
        self.prefix_hits.inc(cached_tokens)
        self.prompt_tokens.inc(prompt_tokens)
        self.prompt_length.observe(prompt_tokens)
        self.computed_length.observe(prompt_tokens - cached_tokens)

    def watch_store(self, store: NodeStore) -> None:
        """Export the number of blocks stored on nodes and loaded from them; vLLM has no such metrics."""
        counts = (("saved", store.saves), ("loaded", store.loads))
        text = "Blocks kept on the engine's node and loaded from nodes, by outcome."
        blocks = Gauge("headway_node_blocks", text, (*_LABELS, "way", "outcome"), registry=self._registry)
        for way, count in counts:
            for outcome in count.__struct_fields__:
                blocks.labels(*self._labels, way, outcome).set_function(partial(getattr, count, outcome))

    def adapters(self, running: Sequence[str], most: int) -> None:
        """Report the LoRA adapters of requests in the engine. As in vLLM, each set of labels is kept with its time."""
        if self._lora is None:
            labels = ("max_lora", "waiting_lora_adapters", "running_lora_adapters")
            self._lora = Gauge("vllm:lora_requests_info", "LoRA requests.", labels, registry=self._registry)
        self._lora.labels(str(most), "", ",".join(running)).set_to_current_time()

    def render(self) -> bytes:
        """Return the metrics in the text exposition format."""
        return generate_latest(self._registry)

    def _counter(self, name: str, text: str) -> Counter:
        return _labelled(Counter(name, text, _LABELS, registry=self._registry), self._labels)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return _labelled(Histogram(name, text, _LABELS, registry=self._registry, buckets=buckets), self._labels)

    def _describe_cache(self, settings: EngineSettings) -> None:
        info = Info("vllm:cache_config", "How the KV cache is set up.", ("engine",), registry=self._registry)
        info.labels(str(settings.rank)).info(
            {
                "block_size": str(settings.profile.block_tokens),
                "num_gpu_blocks": str(settings.profile.num_blocks),
                "enable_prefix_caching": "True",
                "prefix_caching_hash_algo": "xxh3",
            }
        )

    def _watch(self, model: EngineModel) -> None:
        gauges = (
            ("vllm:num_requests_running", "Requests in prefill or decode.", lambda: model.running),
            ("vllm:num_requests_waiting", "Requests that have not started.", lambda: model.waiting),
            ("vllm:kv_cache_usage_perc", "Share of blocks that running requests hold, 0..1.", lambda: model.kv_usage),
        )
        for name, text, read in gauges:
            _labelled(Gauge(name, text, _LABELS, registry=self._registry), self._labels).set_function(read)

    def _count_tokens(self) -> None:
        # The client library adds _total to the names of counters.
        self.prefix_queries = self._counter("vllm:prefix_cache_queries", "Prompt tokens looked up in the cache.")
        self.prefix_hits = self._counter("vllm:prefix_cache_hits", "Prompt tokens found in the cache.")
        self.prompt_tokens = self._counter("vllm:prompt_tokens", "Prompt tokens processed.")
        self.generation_tokens = self._counter("vllm:generation_tokens", "Tokens generated.")
        self.preemptions = self._counter("vllm:num_preemptions", "Sequences put back into the queue.")
        self.iteration_tokens = self._histogram(
            "vllm:iteration_tokens_total", "Tokens of one engine step.", _BATCH_TOKENS
        )
        self.prompt_length = self._histogram("vllm:request_prompt_tokens", "Prompt tokens of a request.", _TOKENS)
        self.computed_length = self._histogram(
            "vllm:request_prefill_kv_computed_tokens", "Prompt tokens a request had to compute.", _TOKENS
        )
        self.output_length = self._histogram("vllm:request_generation_tokens", "Output tokens of a request.", _TOKENS)

    def _count_transfers(self) -> None:
        self.external_queries = self._counter(
            "vllm:external_prefix_cache_queries", "Prompt tokens looked for on other engines."
        )
        self.external_hits = self._counter("vllm:external_prefix_cache_hits", "Prompt tokens that came from others.")
        by_source = Counter(
            "vllm:prompt_tokens_by_source",
            "Prompt tokens by where their KV came from.",
            (*_LABELS, "source"),
            registry=self._registry,
        )
        names = ("local_compute", "local_cache_hit", "external_kv_transfer")
        self.sources = {name: by_source.labels(*self._labels, name) for name in names}
        self.transfer_time = self._histogram("vllm:nixl_xfer_time_seconds", "Transfers of prompts to here.", _SECONDS)
        self.failed_transfers = self._counter("vllm:nixl_num_failed_transfers", "Prompts that did not come.")
        self.kv_expired = self._counter("vllm:nixl_num_kv_expired_reqs", "Prompts that nobody fetched in time.")

    def _time_requests(self) -> None:
        self.ttft = self._histogram("vllm:time_to_first_token_seconds", "Arrival to first token.", _SECONDS)
        self.inter_token = self._histogram("vllm:inter_token_latency_seconds", "Token to token.", _TOKEN_SECONDS)
        self.per_token = self._histogram(
            "vllm:request_time_per_output_token_seconds", "Mean time per token after the first.", _TOKEN_SECONDS
        )
        self.e2e = self._histogram("vllm:e2e_request_latency_seconds", "Arrival to last token.", _SECONDS)
        self.queue = self._histogram("vllm:request_queue_time_seconds", "Arrival to start of prefill.", _SECONDS)
        self.prefill = self._histogram("vllm:request_prefill_time_seconds", "Prefill of a request.", _SECONDS)
        self.decode = self._histogram("vllm:request_decode_time_seconds", "First to last token.", _SECONDS)
        self.inference = self._histogram(
            "vllm:request_inference_time_seconds", "Start of prefill to last token.", _SECONDS
        )


def _labelled(metric: _Metric, labels: tuple[str, str]) -> _Metric:
    child: _Metric = metric.labels(*labels)
    return child
