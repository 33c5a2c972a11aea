"""The settings of one simulated engine server."""

from __future__ import annotations

from typing import Literal

import msgspec

from kvstore.keys.keyring import Keyring
from simulator.engine_models.engine_profile import EngineProfile

MAX_BODY_BYTES = 16 * 1024 * 1024
"""Largest request body, bytes; a 131,072-token prompt takes about 0.5 MiB."""
VERSION = "0.32.0+simulated"


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Identity, addresses and limits of one engine server."""

    host: str = "127.0.0.1"
    port: int = 8100
    served_model: str = "simulated"
    aliases: tuple[str, ...] = ()
    """Alternative names of the model."""
    lora: tuple[str, ...] = ()
    """LoRA adapters of the model; each adapter's blocks have separate keys."""
    max_loras: int = 1
    """Maximum number of adapters that are loaded at once."""
    lora_load_s: float = 0.0
    """Model seconds to load one adapter."""
    media_tokens: int = 0
    """Tokens per image, audio, or video; 0 if the model accepts text only."""
    sliding_window: int = 0
    """Tokens of a sliding window besides full attention, with separate cache blocks, as in a hybrid model; 0 for
    none.
    """
    api_key: str = ""
    """Bearer token that /v1 requires; empty for none."""
    max_model_len: int = 131_072
    """Maximum prompt and output tokens of one request together."""
    max_queued: int = 1024
    """Number of running and waiting requests above which new ones get 503."""
    kv_events_port: int = 0
    """Port of the KV events' PUB socket; 0 for no events."""
    kv_replay_port: int = 0
    """Port of the KV events' replay socket; 0 for no replay."""
    buffer_steps: int = 1000
    """Number of event batches kept for replay."""
    time_scale: float = 1.0
    """Model seconds per real second."""
    stream_interval: int = 1
    """Output tokens per stream chunk after the first."""
    role: Literal["mixed", "prefill", "decode"] = "mixed"
    """Hand-off legs that the engine accepts; other requests are served in any role."""
    hold_s: float = 30.0
    """Real seconds for which a computed prompt is held until it is fetched."""
    fetch_timeout_s: float = 5.0
    """Real seconds after which the engine stops waiting for a prompt."""
    handoff_fault: Literal["", "fail", "hang", "lose"] = ""
    """Deliberate fault of hand-offs: fail at once, never end, or lose the held blocks; for tests."""
    faults: bool = False
    """Whether any client can set a fault by POST /fault; for tests."""
    kv_node: str = ""
    """host:port of the node manager that stores the engine's computed blocks; empty for none."""
    kv_keyring: Keyring | None = None
    """Keyring shared by nodes and their clients."""
    kv_bytes_per_token: int = 1024
    """Payload bytes per token, far less than a real model's; link rates to other nodes are scaled alike."""
    seed: bytes = b""
    """Seed of the engine's block hashes and its output."""
    flavor: Literal["vllm", "sglang"] = "vllm"
    """The product whose names, paths, and event formats the engine uses."""
    ranks: int = 1
    """Number of data-parallel ranks behind the address, each with its own cache, queue, and event sockets."""
    rank: int = 0
    """Number of this rank."""
    profile: EngineProfile = EngineProfile(recompute_last_block=True)

    def of_rank(self, rank: int) -> EngineSettings:
        """Return the settings of one rank. Its ports have the same offsets as in vLLM."""
        # Port 0 means none, for every rank.
        events, replay = self.kv_events_port, self.kv_replay_port
        return msgspec.structs.replace(
            self, rank=rank, kv_events_port=events and events + rank, kv_replay_port=replay and replay + rank
        )

    def adapter(self, model: str | None) -> str:
        """Return the adapter that a request's model names; empty for the model itself."""
        return model if model in self.lora else ""

    @property
    def kv_scale(self) -> float:
        """Scale of payloads: bytes moved per byte that a real engine would move."""
        return self.kv_bytes_per_token / self.profile.kv_bytes_per_token

    @property
    def topic(self) -> str:
        """Topic of the KV events."""
        return f"kv@{self.host}:{self.port}@{self.served_model}"
