"""The command line of the engine server."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

from msgspec.structs import replace

from kvstore.transfer.connection import PeerError
from kvstore.transfer.connection_pool import split_address
from kvstore.transfer.shared_secret import NoSecretError, kv_keyring
from simulator.engine_cache.evictions import EVICTIONS
from simulator.engine_models.engine_profile import EngineProfile, UnreadableProfileError, read_profile
from simulator.engine_server.event_publisher import EventPortTakenError
from simulator.engine_server.server import EngineServer, bind
from simulator.engine_server.settings import EngineSettings
from simulator.parent_death import die_with_parent

MODULE = "python -m simulator.engine_server"


def main(argv: Sequence[str] | None = None, prog: str = MODULE) -> None:
    """Run one engine until SIGTERM or SIGINT. For an invalid setting, exit with a message and status 1."""
    options = parser(prog).parse_args(argv)
    if options.data_parallel_size > 1 and (options.flavor != "vllm" or options.kv_node):
        raise SystemExit("simulated engine: several ranks are for --flavor vllm without --kv-node only")
    if options.lora and (options.flavor != "vllm" or options.kv_node):
        raise SystemExit("simulated engine: --lora is for --flavor vllm without --kv-node only")
    if options.cpu_blocks and options.flavor != "vllm":
        raise SystemExit("simulated engine: --cpu-blocks is for --flavor vllm only")
    if options.sliding_window and (options.flavor != "vllm" or options.kv_node or options.cpu_blocks):
        raise SystemExit("simulated engine: --sliding-window is for --flavor vllm without --kv-node, --cpu-blocks only")
    if options.media_tokens and (options.flavor != "vllm" or options.kv_node):
        raise SystemExit("simulated engine: --media-tokens is for --flavor vllm without --kv-node only")
    if options.parent_pid is not None:
        die_with_parent(options.parent_pid)
    try:
        settings = read_settings(options)
        listener = bind(settings)
        EngineServer(settings).run(sockets=[listener])
    except (UnreadableProfileError, EventPortTakenError, NoSecretError) as error:
        raise SystemExit(f"simulated engine: {error}") from error
    except KeyboardInterrupt:
        return


def read_settings(options: argparse.Namespace) -> EngineSettings:
    """Return the settings from the parsed options; raise UnreadableProfileError or NoSecretError."""
    profile = EngineProfile() if options.profile is None else read_profile(options.profile)
    # With the port, since engines of one fleet have one --seed and need hashes of their own.
    seed = os.urandom(16) if options.seed is None else f"{options.seed}:{options.port}".encode()
    own = {"block_tokens": options.block_size, "num_blocks": options.num_blocks, "eviction": options.eviction}
    own |= {"cpu_blocks": options.cpu_blocks}
    given = {name: value for name, value in own.items() if value is not None}
    profile = replace(profile, recompute_last_block=True, eviction_seed=crc32(seed), **given)
    # A partial last block is not cached, so a prompt may be one token short of one more block.
    fits = profile.block_tokens * (profile.num_blocks + 1) - 1
    named_alike = {name: given for name, given in vars(options).items() if name in EngineSettings.__struct_fields__}
    others = {
        "served_model": options.served_model_name[0],
        "aliases": tuple(options.served_model_name[1:]),
        "lora": tuple(options.lora),
        "max_model_len": min(options.max_model_len, fits),
        "max_queued": options.max_num_queued_reqs,
        "ranks": options.data_parallel_size,
        # Only with a node is a missing secret an error.
        "kv_keyring": kv_keyring(os.environ) if options.kv_node else None,
        "seed": seed,
        "profile": profile,
    }
    return EngineSettings(**named_alike | others)


def parser(prog: str = MODULE) -> argparse.ArgumentParser:
    """Return the command line parser."""
    made = argparse.ArgumentParser(
        prog=prog,
        description="A simulated inference engine with vLLM's HTTP API, metrics, and KV events.",
    )
    add = made.add_argument
    add("--host", default="127.0.0.1", help="address to listen on (default: loopback only)")
    add("--port", type=_port, default=8100, help="HTTP port")
    add("--served-model-name", nargs="+", default=["simulated"], help="names of the model; the first is the main name")
    add("--lora", nargs="+", default=[], metavar="NAME", help="LoRA adapters of the model (only vllm without node)")
    add("--max-loras", type=_positive, default=1, help="maximum number of adapters loaded at once")
    add("--lora-load-s", type=_pause, default=0.0, help="model seconds to load an adapter")
    add("--media-tokens", type=int, default=0, help="tokens per image or audio (only vllm without node); 0: text only")
    add("--api-key", default="", help="bearer token that requests must have; empty: none")
    add("--block-size", type=_positive, help="tokens per KV block (default: the profile's, 512)")
    add("--num-blocks", type=_positive, help="number of KV blocks (default: the profile's, 1953)")
    add("--cpu-blocks", type=_positive, help="block copies in CPU memory (default: the profile's, 0); vllm only")
    add(
        "--sliding-window",
        type=_positive,
        default=0,
        help="tokens of a sliding window besides full attention (hybrid model)",
    )
    add("--max-model-len", type=_positive, default=131_072, help="maximum prompt and output tokens of one request")
    add("--max-num-queued-reqs", type=_positive, default=1024, help="number of requests above which new ones get 503")
    add("--kv-events-port", type=_port, default=0, help="port for publishing KV events; 0: none")
    add("--kv-replay-port", type=_port, default=0, help="port for replaying KV events; 0: none")
    add("--time-scale", type=_speed, default=1.0, help="model seconds per real second; 2 runs twice as fast")
    add("--stream-interval", type=_positive, default=1, help="output tokens per stream chunk after the first")
    add("--profile", type=Path, help="JSON file of the engine profile")
    add("--eviction", choices=tuple(EVICTIONS), help="eviction rule of the prefix cache (default: the profile's, lru)")
    add("--role", choices=("mixed", "prefill", "decode"), default="mixed", help="hand-off legs that the engine accepts")
    add("--hold-s", type=_seconds, default=30.0, help="seconds for which a computed prompt is held")
    add("--fetch-timeout-s", type=_seconds, default=5.0, help="timeout for a prompt from another engine")
    add("--handoff-fault", choices=("", "fail", "hang", "lose"), default="", help="deliberate fault of hand-offs")
    add("--faults", action="store_true", help="accept faults by POST /fault, for tests")
    add("--kv-node", type=_node, default="", help="host:port of the node manager that stores computed blocks")
    add("--kv-bytes-per-token", type=_positive, default=1024, help="payload bytes per token on the node")
    add("--seed", type=int, help="seed of block hashes and output (default: new in each process)")
    add(
        "--flavor",
        choices=("vllm", "sglang"),
        default="vllm",
        help="product whose HTTP paths, metrics, and events it uses",
    )
    add("--data-parallel-size", type=_positive, default=1, help="ranks behind the address (only vllm without node)")
    add("--parent-pid", type=int, help="exit when this process ends")
    return made


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= 65_535:
        raise argparse.ArgumentTypeError(f"{port} is no port; use 0 to 65535")
    return port


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {value}")
    return value


def _node(text: str) -> str:
    if text:
        try:
            split_address(text)
        except PeerError as error:
            raise argparse.ArgumentTypeError(str(error)) from error
    return text


def _seconds(text: str) -> float:
    value = float(text)
    if not 0.001 <= value <= 86_400:
        raise argparse.ArgumentTypeError(f"must be from 0.001 to 86400 seconds, not {value}")
    return value


def _pause(text: str) -> float:
    return 0.0 if float(text) == 0.0 else _seconds(text)


def _speed(text: str) -> float:
    value = float(text)
    if not 0.001 <= value <= 10_000:
        raise argparse.ArgumentTypeError(f"must be from 0.001 to 10000, not {value}")
    return value
