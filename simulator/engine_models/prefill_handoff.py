"""A co-located engine that can also hand over a computed prompt to another engine, or receive one.

The simulated engine server runs this model. Each request determines whether it prefills, decodes, or does both (vLLM's
`kv_transfer_params`). A handed-over prompt stays pinned until it is fetched. It is sent layer by layer over the link
while it is computed (Mooncake §3.1, step 3). A received prompt counts as a prefill with the duration of one decode
step.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace
from typing_extensions import override

from simulator.engine_models.engine_events import EngineEvent
from simulator.engine_models.engine_profile import EngineProfile
from simulator.engine_models.fifo_engine import Admitted, EngineModel
from simulator.engine_models.simulated_engine import PromptSequence


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


class HeldPrompt(msgspec.Struct, frozen=True, gc=False):
    """A computed prompt that waits to be fetched; its transfer over the link ends at `ready_s`."""

    keys: Sequence[int]
    prompt_tokens: int
    cached_tokens: int
    ready_s: float


class PrefillHandoffEngine(EngineModel):
    """An engine that hands over and receives prompts.

    Mutable state besides the model's: `_handing` and `_loaded` (ids of requests to hand over, and of received ones),
    `_started_s` (start of the running prefill), the link, and `_held` (prompts kept for other engines, in the order in
    which they ended).
    """

    def __init__(self, profile: EngineProfile, *, emit_tokens: bool = True, window: int = 0) -> None:
        super().__init__(profile, emit_tokens=emit_tokens, window=window)
        self.link = KvLink(profile)
        self._handing: set[str] = set()
        self._loaded: set[str] = set()
        self._held: dict[str, HeldPrompt] = {}
        self._started_s = 0.0

    def submit_handing(self, sequence: PromptSequence, now: float) -> None:
        """Queue a prompt that another engine will continue. It generates one token; its KV is then held."""
        self.submit(replace(sequence, output_tokens=1), now)
        self._handing.add(sequence.request_id)

    def submit_loaded(self, sequence: PromptSequence, now: float) -> None:
        """Queue a sequence whose prompt KV was loaded from another engine."""
        self.submit(sequence, now)
        self._loaded.add(sequence.request_id)

    def held(self, request_id: str) -> HeldPrompt | None:
        """Return the prompt that is held under this id; None if there is none."""
        return self._held.get(request_id)

    def let_go(self, request_id: str) -> bool:
        """Release a held prompt; its blocks stay in the cache like others. Return False if none is held."""
        held = self._held.pop(request_id, None)
        if held is None:
            return False
        self._cache.unpin(held.keys)
        return True

    @override
    def abort(self, request_id: str, now: float) -> bool:
        """Remove a request at once, in any state; return False if it is absent."""
        self._handing.discard(request_id)
        self._loaded.discard(request_id)
        return super().abort(request_id, now)

    @override
    def reset_cache(self) -> bool:
        """Drop all cached blocks. While sequences run or prompts are held, keep them and return False."""
        return not self._held and super().reset_cache()

    @override
    def pinned_keys(self) -> set[int]:
        """Return the blocks that running sequences and held prompts pin."""
        return super().pinned_keys().union(*(held.keys for held in self._held.values()))

    @override
    def _admit_head(self) -> bool:
        """Admit the first queued prompt. An engine that would otherwise be idle releases held prompts to make room."""
        while not super()._admit_head():
            # Running sequences release memory by themselves.
            if self._running or not self._held:
                return False
            self.let_go(next(iter(self._held)))
        return True

    @override
    def _start_prefill(self, at_s: float, events: list[EngineEvent]) -> None:
        self._started_s = at_s
        admitted = self._prefilling
        if admitted is not None and admitted.sequence.request_id in self._loaded:
            # As vLLM counts: the last token is always computed.
            admitted.cached_tokens = admitted.sequence.prompt_tokens - 1
        super()._start_prefill(at_s, events)

    @override
    def _prefill_s(self, admitted: Admitted) -> float:
        sequence = admitted.sequence
        if sequence.request_id not in self._loaded:
            return super()._prefill_s(admitted)
        return self.profile.step_s(1, sequence.prompt_tokens)

    @override
    def _finish(self, item: Admitted, at_s: float, events: list[EngineEvent]) -> None:
        sequence = item.sequence
        self._loaded.discard(sequence.request_id)
        if sequence.request_id in self._handing:
            self._handing.discard(sequence.request_id)
            # Before the sequence's own pins are released.
            keys = sequence.keys[: self._cache.pin(sequence.keys)]
            computed = sequence.prompt_tokens - item.cached_tokens
            ready_s = self.link.send(item.cached_tokens, computed, self._started_s, at_s)
            self._held[sequence.request_id] = HeldPrompt(keys, sequence.prompt_tokens, item.cached_tokens, ready_s)
        super()._finish(item, at_s, events)
