"""SGLang's formats: metric names, /v1/loads, /server_info, and KV events.

Written from the sources and documentation of SGLang 0.5.23, but not compared with a running engine.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from kvstore.events.kv_events import AllBlocksCleared, BlockRemoved, BlockStored, KvEvent
from simulator.engine_models.fifo_engine import EngineModel
from simulator.engine_server.settings import EngineSettings

VERSION = "0.5.23+simulated"
_NAMES = {
    "vllm:num_requests_running": "sglang:num_running_reqs",
    "vllm:num_requests_waiting": "sglang:num_queue_reqs",
    "vllm:kv_cache_usage_perc": "sglang:token_usage",
    "vllm:prompt_tokens_total": "sglang:prompt_tokens_total",
    "vllm:generation_tokens_total": "sglang:generation_tokens_total",
    "vllm:prefix_cache_hits_total": "sglang:cached_tokens_total",
    "vllm:time_to_first_token_seconds": "sglang:time_to_first_token_seconds",
    "vllm:e2e_request_latency_seconds": "sglang:e2e_request_latency_seconds",
}
_LINE = re.compile(r"^(?:# (?:HELP|TYPE) )?(vllm:[a-z0-9_]+?)(?:_bucket|_sum|_count|_created)?(?:[{ ].*)$")
_MODEL = re.compile(r'\{engine="0",')


def metrics(vllm: bytes, settings: EngineSettings) -> bytes:
    """Return vLLM's exposition with SGLang's names, without series that SGLang lacks."""
    lines = []
    for line in vllm.decode().splitlines():
        match = _LINE.match(line)
        if match is None:
            lines.append(line)
        elif match[1] in _NAMES:
            renamed = line.replace(match[1], _NAMES[match[1]], 1)
            lines.append(_MODEL.sub('{dp_rank="0",engine_type="unified",tp_rank="0",', renamed))
    size = settings.profile.num_blocks * settings.profile.block_tokens
    lines.append(f'sglang:max_total_num_tokens{{model_name="{settings.served_model}"}} {size}.0')
    return "\n".join(lines).encode() + b"\n"


def loads(model: EngineModel, settings: EngineSettings) -> dict[str, Any]:
    """Return the response of GET /v1/loads."""
    size = settings.profile.num_blocks * settings.profile.block_tokens
    rank = {
        "dp_rank": 0,
        "num_running_reqs": model.running,
        "num_waiting_reqs": model.waiting,
        "num_used_tokens": round(model.kv_usage * size),
        "max_total_num_tokens": size,
        "token_usage": model.kv_usage,
    }
    return {"version": VERSION, "num_accelerators": 1, "loads": [rank]}


def server_info(settings: EngineSettings) -> dict[str, Any]:
    """Return the response of GET /server_info: the engine's command line arguments."""
    events = None
    if settings.kv_events_port:
        sockets = {"publisher": "zmq", "endpoint": f"tcp://*:{settings.kv_events_port}", "topic": settings.topic}
        if settings.kv_replay_port:
            sockets["replay_endpoint"] = f"tcp://*:{settings.kv_replay_port}"
        events = json.dumps(sockets)
    return {
        "model_path": settings.served_model,
        "page_size": settings.profile.block_tokens,
        "dp_size": 1,
        "tp_size": 1,
        "max_total_num_tokens": settings.profile.num_blocks * settings.profile.block_tokens,
        "kv_events_config": events,
        "disaggregation_mode": "null" if settings.role == "mixed" else settings.role,
        # The real one uses a separate port; here it is the port of the HTTP server.
        "disaggregation_bootstrap_port": settings.port,
        "version": VERSION,
    }


def sglang_events(events: Sequence[KvEvent]) -> list[KvEvent]:
    """Return vLLM's events in SGLang's format: signed hashes, and a separate field for the salt."""
    return [_sglang_event(event) for event in events]


def _sglang_event(event: KvEvent) -> KvEvent:
    if isinstance(event, AllBlocksCleared):
        return event
    hashes = [_signed(block_hash_) for block_hash_ in event.block_hashes]
    if isinstance(event, BlockRemoved):
        return msgspec.structs.replace(event, block_hashes=hashes)
    # Adapters and media are for vLLM's flavor only, so a salt is the only extra key.
    salt = event.extra_keys[0][0][1] if event.extra_keys else None
    parent = None if event.parent_block_hash is None else _signed(event.parent_block_hash)
    return BlockStored(hashes, parent, event.token_ids, event.block_size, cache_salt=salt)


def _signed(block_hash: int | bytes) -> int | bytes:
    if isinstance(block_hash, bytes):
        return block_hash
    return block_hash - (1 << 64) if block_hash >= 1 << 63 else block_hash
