"""vLLM's KV connector to Headway's node managers: `--kv-transfer-config` names this class and this module.

It needs vLLM and torch, and only `kvstore` of Headway. The decisions are made in `scheduler_side` and `worker_side`;
this file adapts them to vLLM's API (0.32, `vllm/distributed/kv_transfer/kv_connector/v1/base.py`).
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import vllm
from huggingface_hub import snapshot_download
from typing_extensions import override
from vllm.distributed import get_tensor_model_parallel_rank
from vllm.distributed.kv_transfer.kv_connector.utils import get_current_attn_backends
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorHandshakeMetadata,
    KVConnectorMetadata,
    KVConnectorRole,
    KVConnectorWorkerMetadata,
)
from vllm.logger import init_logger
from vllm.v1.kv_cache_interface import FullAttentionSpec

from kvstore.backends.backend import KvBackend
from kvstore.backends.registry import BACKENDS
from kvstore.connector.connector_settings import ConnectorSettings, adapter_revision, settings_in, weight_revision
from kvstore.connector.engine_memory import EngineCacheBlocks
from kvstore.connector.node_lookup import NodeLookup
from kvstore.connector.paged_memory import PagedMemory
from kvstore.connector.scheduler_side import SchedulerSide, progress_of
from kvstore.connector.step_messages import StepJobs, StepReport
from kvstore.connector.worker_side import WorkerSide
from kvstore.keys.payload_key import PayloadFormat
from kvstore.transfer.shared_secret import kv_keyring

logger = init_logger(f"vllm.{__name__}")


@dataclass
class StepMetadata(KVConnectorMetadata):
    """Message from the scheduler side to the workers."""

    jobs: StepJobs


@dataclass
class ReportMetadata(KVConnectorWorkerMetadata):
    """Message from a worker to the scheduler side."""

    report: StepReport

    @override
    def aggregate(self, other: KVConnectorWorkerMetadata) -> KVConnectorWorkerMetadata:
        """Combine the reports of two workers."""
        return ReportMetadata(self.report.joined(other.report))


@dataclass
class FormatMetadata(KVConnectorHandshakeMetadata):
    """Format of a worker's blocks, known after its KV caches are allocated."""

    payload_format: PayloadFormat
    payload_bytes: int


class HeadwayConnector(KVConnectorBase_V1):
    """vLLM's connector, one object in the scheduler and one in each worker.

    Raises ValueError if an option is invalid.
    """

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        _check(vllm_config, kv_cache_config)
        self._settings = settings_in(self._kv_transfer_config.kv_connector_extra_config)
        # The next step would be scheduled with tokens that a failed load takes back; micro-batches share no layer.
        split = vllm_config.scheduler_config.async_scheduling or vllm_config.parallel_config.use_ubatching
        if self._settings.layer_wise and split:
            raise ValueError('"layer_wise" needs --no-async-scheduling, and no micro-batches (--enable-dbo).')
        self._keyring = kv_keyring(os.environ) if self._settings.backend == "node" else None
        self._block_tokens = int(vllm_config.cache_config.block_size)
        self._scheduler = SchedulerSide(
            self._settings,
            self._block_tokens,
            workers=vllm_config.parallel_config.tensor_parallel_size,
            step_tokens=vllm_config.scheduler_config.max_num_batched_tokens,
        )
        self._lookup: NodeLookup | None = None
        self._worker: WorkerSide | None = None
        self._format: FormatMetadata | None = None
        self._failed_blocks: set[int] = set()

    @property
    @override
    def requires_kv_delivery(self) -> bool:
        """Return False: a block that is not stored is a later miss, and no reason to compute a request again."""
        return False

    @classmethod
    @override
    def requires_piecewise_for_cudagraph(cls, extra_config: dict[str, Any]) -> bool:
        """Return whether steps call the connector for each layer, which one recorded graph would omit."""
        return bool(extra_config.get("layer_wise"))

    # The worker's side, in the order of its calls

    @override
    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        """Set up the worker's side with the engine's KV caches."""
        memory = PagedMemory(kv_caches, self._kv_cache_config.num_blocks, _kernel(self._vllm_config, kv_caches))
        payload_format = _payload_format(self._vllm_config, self._settings, self._block_tokens, memory)
        self._format = FormatMetadata(payload_format, memory.payload_bytes)
        self._worker = WorkerSide(self._settings, self._backend(keeps=True), memory, payload_format, time.monotonic)
        logger.info(
            "Headway connector: blocks of %d tokens and %d bytes in %d layers, %s %s",
            self._block_tokens,
            memory.payload_bytes,
            len(memory.layout.layers),
            self._settings.backend,
            self._settings.node or "none",
        )

    @override
    def get_handshake_metadata(self) -> KVConnectorHandshakeMetadata | None:
        """Return the block format for the scheduler side."""
        return self._format

    @override
    def bind_connector_metadata(self, connector_metadata: KVConnectorMetadata) -> None:
        """Start a step."""
        super().bind_connector_metadata(connector_metadata)
        self._at_work.begin(connector_metadata.jobs)

    @override
    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Start loads in the background."""
        self._at_work.start_loads()

    @override
    def wait_for_layer_load(self, layer_name: str) -> None:
        """Wait until the step's own loads have this layer. All other requests wait for their blocks unscheduled."""
        self._at_work.wait_for_layer(layer_name)

    @override
    def save_kv_layer(self, layer_name: str, kv_layer: torch.Tensor, attn_metadata: Any, **kwargs: Any) -> None:
        """Copy the layer beside the next ones, if `layer_wise` is set, else all layers after the step."""
        if self._settings.layer_wise:
            self._at_work.save_layer(layer_name)

    @override
    def wait_for_save(self) -> None:
        """Copy what is left of the blocks computed in the step. They are stored in the background."""
        self._at_work.save()

    @override
    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, set[str] | None]:
        """Return the requests whose loads have ended, complete or not."""
        ended, self._failed_blocks = self._at_work.take_ended()
        # None: no request keeps its blocks for a store, because `wait_for_save` has copied them.
        return None, ended

    @override
    def get_block_ids_with_load_errors(self) -> set[int]:
        """Return the engine's blocks that must be computed after failed loads.

        Called after `get_finished` in the same step.
        """
        failed, self._failed_blocks = self._failed_blocks, set()
        return failed

    @override
    def build_connector_worker_meta(self) -> KVConnectorWorkerMetadata | None:
        """Return the report of ended jobs for the scheduler side."""
        report = self._at_work.take_report()
        return ReportMetadata(report) if report else None

    @override
    def shutdown(self) -> None:
        """Store queued blocks, and close the connections."""
        if self._worker is not None:
            self._worker.close()
        if self._lookup is not None:
            self._lookup.close()

    # The scheduler's side

    @override
    def bind_kv_cache_manager(self, kv_cache_manager: Any) -> None:
        """Store how blocks of failed loads are removed from the engine's cache, and where prefetches get memory."""
        super().bind_kv_cache_manager(kv_cache_manager)
        self._scheduler.evict = kv_cache_manager.evict_blocks
        if self._settings.prefetches and kv_cache_manager.enable_caching:
            self._scheduler.prefetch.memory = EngineCacheBlocks(kv_cache_manager.block_pool, self._block_tokens)

    @override
    def set_xfer_handshake_metadata(self, metadata: dict[int, KVConnectorHandshakeMetadata]) -> None:
        """Store the format of the workers' blocks."""
        described = metadata[0]
        self._scheduler.payload_bytes = described.payload_bytes
        settings = self._settings
        if settings.asks or settings.prefetches:
            lookup = NodeLookup(self._backend(keeps=False), settings.lookup_timeout_s, described.payload_format)
            self._lookup, self._scheduler.names = lookup, lookup
            self._scheduler.lookup = lookup if settings.asks else None

    @override
    def on_new_request(self, request: Any) -> None:
        """Read the request's order."""
        lora = request.lora_request
        adapter = adapter_revision(lora.lora_name, Path(lora.lora_path), lora.lora_int_id) if lora else ""
        self._scheduler.add(request, adapter)

    @override
    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int | None, bool]:
        """Return how many tokens can be loaded, and whether beside the engine's steps or within the next one."""
        # vLLM sets this where it needs the logits of every prompt token, as for prompt logprobs.
        if request.skip_reading_prefix_cache:
            return 0, False
        tokens = self._scheduler.matched(request, num_computed_tokens, time.monotonic())
        layered = self._scheduler.is_layered(request.request_id)
        if layered:
            logger.debug("%s loads %d tokens layer by layer", request.request_id, tokens)
        return tokens, bool(tokens) and not layered

    @override
    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """Schedule the loads whose blocks the engine has allocated."""
        if num_external_tokens:
            self._scheduler.allocated(request, blocks.get_block_ids()[0], num_external_tokens)

    @override
    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        """Return the workers' jobs for this step."""
        return StepMetadata(
            self._scheduler.step(
                progress_of(scheduler_output), scheduler_output.total_num_scheduled_tokens, time.monotonic()
            )
        )

    @override
    def update_connector_output(self, connector_output: Any) -> None:
        """Process the workers' report."""
        metadata = connector_output.kv_connector_worker_meta
        if isinstance(metadata, ReportMetadata):
            self._scheduler.report(metadata.report, time.monotonic())
            for end in metadata.report.ends:
                self._correct_cached_tokens(end.request_id)

    @override
    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        """Return the outcome of the order. The blocks can be freed: blocks to be stored are already copied."""
        return False, self._scheduler.finished(request.request_id)

    def _correct_cached_tokens(self, request_id: str) -> None:
        """Correct vLLM's count of cached tokens to the loaded ones: it counted all tokens before the load began."""
        ended = self._scheduler.loaded(request_id)
        if ended is None:
            return
        request, local, loaded = ended
        if request.prefill_stats is not None and request.num_preemptions == 0:
            request.prefill_stats.set(request.num_prompt_tokens, local, loaded)

    def _backend(self, *, keeps: bool) -> KvBackend:
        settings = self._settings.store(self._keyring, keeps=keeps)
        return BACKENDS[self._settings.backend](settings, time.monotonic)

    @property
    def _at_work(self) -> WorkerSide:
        if self._worker is None:
            raise RuntimeError("the engine has not registered its KV caches")
        return self._worker


def _check(vllm_config: Any, kv_cache_config: Any) -> None:
    """Raise ValueError if blocks do not hold the same tokens in all layers."""
    groups, parallel = kv_cache_config.kv_cache_groups, vllm_config.parallel_config
    if len(groups) != 1 or not isinstance(groups[0].kv_cache_spec, FullAttentionSpec):
        raise ValueError("The Headway connector needs a model whose layers all have full attention.")
    if parallel.decode_context_parallel_size > 1 or parallel.pipeline_parallel_size > 1:
        raise ValueError("The Headway connector does not support context or pipeline parallelism.")
    block_tokens, hash_tokens = vllm_config.cache_config.block_size, kv_cache_config.hash_block_size
    if groups[0].kv_cache_spec.block_size != block_tokens or hash_tokens not in (None, block_tokens):
        raise ValueError("The Headway connector needs one block size for cache and hashes.")
    # Payload keys are built on these hashes, and two prompts with one hash would be wrong tokens.
    if not str(vllm_config.cache_config.prefix_caching_hash_algo).startswith("sha256"):
        raise ValueError("The Headway connector needs --prefix-caching-hash-algo sha256 or sha256_cbor.")
    if vllm_config.kv_transfer_config.kv_load_failure_policy != "recompute":
        raise ValueError('Set "kv_load_failure_policy": "recompute", or each lost block would fail a request.')


def _kernel(vllm_config: Any, kv_caches: dict[str, torch.Tensor]) -> str:
    """Return everything that determines a block's bytes besides tensor shapes. CPU kernels use special orders."""
    backends = sorted(str(backend.full_cls_name()) for backend in get_current_attn_backends(vllm_config))
    context = vllm_config.compilation_config.static_forward_context
    kinds = sorted({str(getattr(context.get(name), "isa", "")) for name in kv_caches})
    machine = f"{torch.backends.cpu.get_cpu_capability()} {torch.cpu._is_amx_tile_supported()}"
    device = next(iter(kv_caches.values())).device.type
    layout = str(vllm_config.cache_config.kv_cache_layout)
    return " ".join([vllm.__version__, device, layout, *backends, *kinds, machine if device == "cpu" else ""])


def _payload_format(
    vllm_config: Any, settings: ConnectorSettings, block_tokens: int, memory: PagedMemory
) -> PayloadFormat:
    model = vllm_config.model_config
    revision = settings.weight_revision or weight_revision(_folder(model))
    return PayloadFormat(
        # Without its folder, which differs between machines; the revision distinguishes weights of one name.
        model=Path(model.model).name,
        # The same files give other KV under another quantization, dtype, or override.
        weight_revision=f"{revision} {model.quantization} {model.dtype} {model.hf_overrides}",
        kv_dtype=str(vllm_config.cache_config.cache_dtype),
        kv_layout=memory.layout.name,
        block_tokens=block_tokens,
        tp_rank=get_tensor_model_parallel_rank(),
        tp_size=vllm_config.parallel_config.tensor_parallel_size,
    )


def _folder(model: Any) -> Path:
    folder = Path(model.model)
    return (
        folder
        if folder.is_dir()
        # Local files only: vLLM has downloaded them already.
        else Path(snapshot_download(model.model, revision=model.revision, local_files_only=True))
    )
