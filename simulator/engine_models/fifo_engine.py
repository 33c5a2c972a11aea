"""One simulated engine as a pure, clock-free state machine with FIFO prefill, batched decode, and a prefix cache.

The same model runs under a virtual clock and in the real-time engine server. The caller controls time: it submits
arrivals (`submit`), reads when the next event is due (`next_event_time`), and advances time (`advance`), which returns
the events with exact times even if it is called late.

Rules (the scheduling study's §1): one prefill at a time, by priority and then arrival; the cache is matched when a
prefill starts and blocks are inserted when it ends; prefill has precedence; if none is waiting, all running sequences
decode one step together. Generated tokens take no blocks. If the profile limits the tokens of running requests on the
device, a sequence reserves prompt and output tokens from the start of its prefill until it ends, and a prefill that
does not fit waits (DualMap A.8's bottleneck).
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace
from typing_extensions import override

from simulator.engine_cache.prefix_cache import CpuCopies, WindowBlocks
from simulator.engine_models.decode_batch import DecodeBatch
from simulator.engine_models.engine_events import (
    BlocksRemoved,
    BlocksStored,
    EngineEvent,
    Finished,
    FirstTokenEvent,
    PrefillStarted,
    TierChanged,
    Token,
    WindowChanged,
)
from simulator.engine_models.engine_profile import EngineProfile
from simulator.engine_models.queued_engine import CachedEngine
from simulator.engine_models.simulated_engine import PromptSequence

WINDOW_SHARE = 8
"""A hybrid engine has one block of window memory per this many blocks of full attention."""


@dataclass(slots=True, eq=False)
class Admitted:
    """A sequence that has left the queue: its cache hit and the blocks that it holds."""

    sequence: PromptSequence
    cached_tokens: int
    pinned: int
    from_cpu: int = 0
    """Number of `cached_tokens` that are loaded from CPU memory."""
    shared: int = 0
    """Number of blocks that full attention had cached, even if the window could not use them."""

    @property
    def memory(self) -> int:
        """Device tokens that the sequence needs at its end."""
        return self.sequence.prompt_tokens + self.sequence.output_tokens


class EngineModel(CachedEngine):
    """An engine with FIFO prefill and batched decode.

    Mutable state besides the queue's and the cache: `_prefilling`, `_running` (decoding sequences) with their `_batch`,
    `_memory` (device tokens in use), and `_live` (ids in the engine).

    With `emit_tokens` off, there are no Token events, and all decode steps until the next event are one operation; its
    times then differ from those of single steps only by rounding. With a `window`, the model is a hybrid one: a hit
    also needs the blocks for that many tokens before its end, which are kept in additional memory of one eighth of the
    blocks.
    """

    def __init__(self, profile: EngineProfile, *, emit_tokens: bool = True, window: int = 0) -> None:
        super().__init__(profile)
        self._emit_tokens = emit_tokens
        self._prefilling: Admitted | None = None
        self._running: dict[str, Admitted] = {}
        self._batch = DecodeBatch(profile)
        self._live: set[str] = set()
        self._memory = 0
        self._copies = CpuCopies(profile.cpu_blocks) if profile.cpu_blocks else None
        # The next computed token is in its own window.
        needed = -(-(window - 1) // profile.block_tokens)
        # At least one prompt's window must fit.
        self._window = WindowBlocks(max(needed, profile.num_blocks // WINDOW_SHARE), needed) if window else None

    @property
    def running(self) -> int:
        """Number of sequences that prefill or decode."""
        return len(self._running) + (self._prefilling is not None)

    @property
    def running_tokens(self) -> int:
        """Number of tokens that the decoding sequences have generated, as of the end of the last run of steps."""
        return sum([1 + self._batch.made(name) for name in self._running])

    @property
    def kv_usage(self) -> float:
        """Share of the memory that running sequences hold, 0..1. A warm but idle cache counts as 0, as in vLLM."""
        held = self._cache.pinned_blocks / self.profile.num_blocks
        device = self.profile.device_tokens
        return max(held, self._memory / device) if device else held

    @property
    def kv_tokens(self) -> int:
        """Tokens of running sequences that fit into memory."""
        return self.profile.device_tokens or self.profile.num_blocks * self.profile.block_tokens

    def submit(self, sequence: PromptSequence, now: float) -> None:
        """Queue a sequence that arrives at `now`; raise ValueError if it can never run."""
        self._forward(now)
        if sequence.request_id in self._live:
            raise ValueError(f"request {sequence.request_id} is in the engine already")
        if sequence.prompt_tokens < 1 or sequence.output_tokens < 1:
            raise ValueError("a sequence needs at least one prompt token and one output token")
        if len(sequence.keys) > self.profile.num_blocks:
            raise ValueError(f"{len(sequence.keys)} blocks can never fit into {self.profile.num_blocks}")
        memory = sequence.prompt_tokens + sequence.output_tokens
        if self.profile.device_tokens and memory > self.profile.device_tokens:
            raise ValueError(f"{memory} tokens can never fit into {self.profile.device_tokens}")
        self._order += 1
        self._live.add(sequence.request_id)
        self._enqueue(sequence, sequence, now)
        if self._prefilling is None and self._busy_until is not None:
            # The prefill has precedence over the steps that are still to come.
            self._busy_until = self._batch.cut_run(now, self._busy_until)

    def abort(self, request_id: str, now: float) -> bool:
        """Remove a request at once, in any state; return False if it is absent."""
        self._forward(now)
        if request_id not in self._live:
            return False
        self._live.discard(request_id)
        running = self._running.pop(request_id, None)
        if running is not None:
            if self._prefilling is None and self._busy_until is not None:
                self._busy_until = self._batch.settle_run(now, self._busy_until)
            self._batch.leave(request_id)
            self._release(running)
            if not self._running and self._prefilling is None:
                self._stop_operation(now)
        elif self._prefilling is not None and self._prefilling.sequence.request_id == request_id:
            self._release(self._prefilling)
            self._prefilling = None
            self._stop_operation(now)
        else:
            self._unqueue(request_id)
        return True

    def holds(self, request_id: str) -> bool:
        """Return whether a request is in the engine, waiting or running."""
        return request_id in self._live

    def reset_cache(self) -> bool:
        """Drop all cached blocks. While sequences run, keep them and return False."""
        if self.running:
            return False
        self._cache.clear()
        if self._copies is not None:
            self._copies.clear()
        if self._window is not None:
            self._window.clear()
        return True

    def pinned_keys(self) -> set[int]:
        """Return the blocks that running sequences hold."""
        admitted = [*self._running.values(), *([self._prefilling] if self._prefilling is not None else [])]
        return {key for item in admitted for key in item.sequence.keys[: item.pinned]}

    def check(self) -> None:
        """Raise AssertionError unless queue, running set, pins, and sums are consistent."""
        self._cache.check()
        admitted = list(self._running.values())
        if self._prefilling is not None:
            admitted.append(self._prefilling)
        ids = self._queued_ids() + [item.sequence.request_id for item in admitted]
        if len(ids) != len(self._live) or set(ids) != self._live:
            raise AssertionError("a request is lost or counted twice")
        if self.running > self.profile.max_running:
            raise AssertionError(f"{self.running} running sequences are over {self.profile.max_running}")
        held = self.pinned_keys()
        if len(held) != self._cache.pinned_blocks or not all(key in self._cache for key in held):
            raise AssertionError("the blocks of running sequences are not the pinned ones")
        self._batch.check()
        if self._batch.names() != list(self._running):
            raise AssertionError("the batch does not hold the running sequences")
        if any(self._batch.made(name) + 1 >= item.sequence.output_tokens for name, item in self._running.items()):
            raise AssertionError("a sequence should have finished")
        if self._memory != sum(item.memory for item in admitted):
            raise AssertionError("the device memory is counted wrongly")
        if self.profile.device_tokens and self._memory > self.profile.device_tokens:
            raise AssertionError(f"{self._memory} tokens are on a device of {self.profile.device_tokens}")
        if (self._busy_until is not None) and not admitted:
            raise AssertionError("the engine works on nothing")

    @override
    def _resumes(self) -> bool:
        return bool(self._running)

    @override
    def _start_operation(self, at_s: float, events: list[EngineEvent]) -> None:
        self._see_arrivals(at_s)
        if self._waiting and len(self._running) < self.profile.max_running and self._admit_head():
            self._start_prefill(at_s, events)
        else:
            self._busy_until = self._start_decode(at_s)

    def _start_decode(self, at_s: float) -> float:
        batch = self._batch
        if self._emit_tokens:
            batch.start_step()
            return at_s + batch.seconds(1)
        return batch.start_run(at_s, self._arrivals[0][0] if self._arrivals else None)

    def _admit_head(self) -> bool:
        """Admit the first queued prompt and pin its cached blocks. Return False if it does not fit besides running
        sequences.
        """
        sequence = self._waiting[0][3]
        cache = self._cache
        device = self.profile.device_tokens
        if device and self._memory + sequence.prompt_tokens + sequence.output_tokens > device:
            return False
        # A cheap bound, which counts shared blocks twice; the exact number matters only where it fails.
        if cache.pinned_blocks + len(sequence.keys) > cache.capacity_blocks:
            held = cache.pin(sequence.keys)
            if cache.pinned_blocks + len(sequence.keys) - held > cache.capacity_blocks:
                cache.unpin(sequence.keys[:held])
                return False
        else:
            held = cache.pin(sequence.keys)
        self._next_waiting()
        hit = self.profile.hit_tokens(sequence.prompt_tokens, held)
        self._prefilling = Admitted(sequence, hit, held, shared=hit // self.profile.block_tokens)
        if self._window is not None:
            served = self._window.end(sequence.keys, self._prefilling.shared)
            self._prefilling.cached_tokens = served * self.profile.block_tokens
        self._memory += self._prefilling.memory
        return True

    def _start_prefill(self, at_s: float, events: list[EngineEvent]) -> None:
        admitted = self._prefilling
        if admitted is None:
            raise AssertionError("no prefill was admitted")
        self._take_loaded(admitted, at_s, events)
        if self._copies is not None:
            self._take_copies(admitted, self._copies, at_s, events)
        sequence = admitted.sequence
        events.append(PrefillStarted(sequence.request_id, at_s, admitted.cached_tokens))
        self._busy_until = at_s + self._prefill_s(admitted)

    def _take_loaded(self, admitted: Admitted, at_s: float, events: list[EngineEvent]) -> None:
        """Restore loaded blocks of a prompt that the cache has evicted; its admission made room for them."""
        sequence = admitted.sequence
        loaded = sequence.keys[: sequence.loaded_blocks]
        if len(loaded) > admitted.pinned:
            self._hold(admitted, loaded, at_s, events, loaded=True)
            admitted.cached_tokens = self.profile.hit_tokens(sequence.prompt_tokens, admitted.pinned)

    def _take_copies(self, admitted: Admitted, copies: CpuCopies, at_s: float, events: list[EngineEvent]) -> None:
        """Load the blocks after the cached ones from CPU memory, even if computing them is faster, as vLLM does."""
        sequence = admitted.sequence
        end = copies.end(sequence.keys, admitted.pinned)
        hit = self.profile.hit_tokens(sequence.prompt_tokens, end)
        if end > admitted.pinned and hit > admitted.cached_tokens:
            admitted.from_cpu, admitted.cached_tokens = hit - admitted.cached_tokens, hit
            self._hold(admitted, sequence.keys[:end], at_s, events, loaded=True)

    def _prefill_s(self, admitted: Admitted) -> float:
        sequence, profile = admitted.sequence, self.profile
        load_s = sequence.setup_s + admitted.from_cpu * profile.cpu_load_per_token_s
        return load_s + profile.prefill_s(sequence.prompt_tokens, admitted.cached_tokens)

    @override
    def _finish_operation(self, at_s: float, events: list[EngineEvent]) -> None:
        if self._prefilling is not None:
            self._finish_prefill(self._prefilling, at_s, events)
        else:
            self._finish_step(at_s, events)

    def _finish_prefill(self, admitted: Admitted, at_s: float, events: list[EngineEvent]) -> None:
        self._prefilling = None
        sequence = admitted.sequence
        if self._window is not None:
            # Before full attention's blocks, in the order in which engines publish their groups.
            self._keep_windows(admitted, self._window, at_s, events)
        self._hold(admitted, sequence.keys, at_s, events)
        events.append(FirstTokenEvent(sequence.request_id, at_s, admitted.cached_tokens))
        if sequence.output_tokens == 1:
            self._finish(admitted, at_s, events)
        else:
            self._running[sequence.request_id] = admitted
            # The prefill has made the first token.
            self._batch.join(sequence.request_id, sequence.prompt_tokens + 1, sequence.output_tokens - 1)

    def _hold(
        self, admitted: Admitted, keys: tuple[int, ...], at_s: float, events: list[EngineEvent], *, loaded: bool = False
    ) -> None:
        """Put leading blocks of a running prompt into the cache and pin them."""
        held = admitted.pinned
        removed = self._cache.insert(keys)
        # Before the old pins are released, so that no block is free in between.
        admitted.pinned = self._cache.pin(keys)
        self._cache.unpin(keys[:held])
        if removed:
            events.append(BlocksRemoved(at_s, tuple(removed)))
        if stored := keys[held : admitted.pinned]:
            parent = keys[held - 1] if held else None
            events.append(BlocksStored(admitted.sequence.request_id, at_s, held, stored, parent, loaded))
        if self._copies is not None:
            new, evicted = self._copies.store(stored)
            if new or evicted:
                events.append(TierChanged(at_s, tuple(new), tuple(evicted)))

    def _keep_windows(self, admitted: Admitted, kept: WindowBlocks, at_s: float, events: list[EngineEvent]) -> None:
        """Keep the windows before the prompt's last token and before its shared prefix, as vLLM 0.32 does."""
        sequence, size = admitted.sequence, self.profile.block_tokens
        first, end = admitted.cached_tokens // size, (sequence.prompt_tokens - 1) // size
        positions, evicted = kept.keep(sequence.keys, first, (min(end, len(sequence.keys)), admitted.shared))
        events.append(WindowChanged(sequence.request_id, at_s, first, tuple(positions), tuple(evicted)))

    def _finish_step(self, at_s: float, events: list[EngineEvent]) -> None:
        due = self._batch.finish_run()
        if self._emit_tokens:
            # Before the sequences that are due leave the batch.
            events.extend(Token(name, at_s, self._batch.made(name)) for name in self._running)
        for name in due:
            self._batch.leave(name)
            self._finish(self._running.pop(name), at_s, events)

    def _finish(self, item: Admitted, at_s: float, events: list[EngineEvent]) -> None:
        self._live.discard(item.sequence.request_id)
        self._release(item)
        events.append(Finished(item.sequence.request_id, at_s, item.sequence.output_tokens))

    def _release(self, item: Admitted) -> None:
        self._memory -= item.memory
        self._cache.unpin(item.sequence.keys[: item.pinned])


DEVICE_TOKENS = 300_000
"""Device memory in tokens for running requests, besides the weights, if the profile does not state it."""


def colocated(profile: EngineProfile, *, emit_tokens: bool = False) -> EngineModel:
    """Return an engine whose running requests share `device_tokens` of memory for prompt and output.

    A prefill that does not fit waits for a running request to end: the decode bottleneck of DualMap, A.8. By default
    (`emit_tokens` off), decode steps between two events are simulated as one.
    """
    limited = profile if profile.device_tokens else replace(profile, device_tokens=DEVICE_TOKENS)
    return EngineModel(limited, emit_tokens=emit_tokens)
