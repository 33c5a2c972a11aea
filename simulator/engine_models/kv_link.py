"""The network link of one engine that sends KV to others: transfers run one after another, layer by layer."""

from __future__ import annotations

from simulator.engine_models.engine_profile import EngineProfile


class KvLink:
    """The outgoing link of one prefill engine. Mutable state: `free_at`, when the last transfer ends (seconds)."""

    def __init__(self, profile: EngineProfile) -> None:
        self._layers = profile.layers
        self._token_s = profile.kv_bytes_per_token / profile.link_bytes_per_s
        self._latency_s = profile.link_latency_s
        self.free_at = 0.0

    def send(self, hit_tokens: int, computed_tokens: int, started_s: float, ended_s: float) -> float:
        """Send a prompt's KV while its prefill runs from `started_s` to `ended_s`; return when all of it has arrived.

        The KV of cached tokens is available from the start. A layer of the computed tokens is available once the
        prefill has passed it; all layers take equal shares of the prefill (Mooncake §3.1, step 3, and the layer-wise
        prefill of §7.4.3). Each layer is sent once it is available and the link is free.
        """
        layer_s = computed_tokens * self._token_s / self._layers
        loaded_s = max(self.free_at, started_s) + hit_tokens * self._token_s
        first_layer_s = started_s + (ended_s - started_s) / self._layers
        # Availability is linear in the layer's number, so the last byte is sent after one of three waits:
        # for the link, for the first layer, or for the last one.
        self.free_at = max(max(loaded_s, first_layer_s) + self._layers * layer_s, ended_s + layer_s)
        return self.free_at + self._latency_s
