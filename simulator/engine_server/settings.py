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
    """Further names of the same model."""
    lora: tuple[str, ...] = ()
    """LoRA adapters of the model: names that have blocks of their own."""
    max_loras: int = 1
    """Adapters that are loaded at once."""
    lora_load_s: float = 0.0
    """Model seconds to load one."""
    media_tokens: int = 0
    """Tokens of each image, audio or video; 0: the model reads text only."""
    sliding_window: int = 0
    """Tokens of a window besides full attention, with cache blocks of its own, as in a hybrid model; 0: none."""
    api_key: str = ""
    """Bearer token that /v1 requires; empty: none."""
    max_model_len: int = 131_072
    """Prompt and output tokens of one request together."""
    max_queued: int = 1024
    """Requests, running and waiting, above which new ones get 503."""
    kv_events_port: int = 0
    """Port of the KV events' PUB socket; 0: no events."""
    kv_replay_port: int = 0
    """Port of the KV events' replay socket; 0: no replay."""
    buffer_steps: int = 1000
    """Event batches kept for replay."""
    time_scale: float = 1.0
    """Model seconds that pass in one real second."""
    stream_interval: int = 1
    """Output tokens per stream chunk after the first."""
    role: Literal["mixed", "prefill", "decode"] = "mixed"
    """Legs of a hand-off that it accepts; other requests are served in any role."""
    hold_s: float = 30.0
    """Real seconds for which a computed prompt waits to be fetched."""
    fetch_timeout_s: float = 5.0
    """Real seconds after which a prompt that has not arrived is given up."""
    handoff_fault: Literal["", "fail", "hang", "lose"] = ""
    """Deliberate fault of hand-offs: fail at once, never end, or lose the held blocks; for tests."""
    faults: bool = False
    """Whether any client may set a fault by POST /fault; for tests."""
    kv_node: str = ""
    """host:port of the node manager that stores its computed blocks; empty: none."""
    kv_keyring: Keyring | None = None
    """Keyring of nodes and their clients."""
    kv_bytes_per_token: int = 1024
    """Bytes of a payload per token: far less than a real model's; links towards other nodes are scaled alike."""
    seed: bytes = b""
    """Seeds the engine's own block hashes and its answers."""
    flavor: Literal["vllm", "sglang"] = "vllm"
    """The product whose names, paths and event formats it uses."""
    ranks: int = 1
    """Data-parallel ranks behind the one address, each with a cache, a queue and event sockets of its own."""
    rank: int = 0
    """The rank of this one."""
    profile: EngineProfile = EngineProfile(recompute_last_block=True)

    def of_rank(self, rank: int) -> EngineSettings:
        """Return the settings of one rank, whose ports have the same offsets as in vLLM."""
        # Port 0 means none, for every rank.
        events, replay = self.kv_events_port, self.kv_replay_port
        return msgspec.structs.replace(
            self, rank=rank, kv_events_port=events and events + rank, kv_replay_port=replay and replay + rank
        )

    def adapter(self, model: str | None) -> str:
        """Return the adapter that a request's model names; empty: the model itself."""
        return model if model in self.lora else ""

    @property
    def kv_scale(self) -> float:
        """Bytes moved for each byte that a real engine would move."""
        return self.kv_bytes_per_token / self.profile.kv_bytes_per_token

    @property
    def topic(self) -> str:
        """Topic of the KV events."""
        return f"kv@{self.host}:{self.port}@{self.served_model}"
