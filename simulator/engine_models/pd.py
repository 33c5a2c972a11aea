"""Prefill and decode on separate devices, with the KV handed over by a link (Mooncake §3, DualMap A.6).

`PrefillRole` and `DecodeRole` are the two engines of a disaggregated fleet: the prefill engine's output is submitted to
the decode engine on arrival. `PrefillDecodeEngine` combines one of each into one engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

import msgspec
from msgspec.structs import replace
from typing_extensions import override

from simulator.engine_models.engine_events import EngineEvent, Finished, FirstTokenEvent, PrefillStarted, Token
from simulator.engine_models.engine_profile import EngineProfile
from simulator.engine_models.fifo_engine import DEVICE_TOKENS, EngineModel
from simulator.engine_models.prefill_handoff import KvLink
from simulator.engine_models.simulated_engine import PromptSequence


class Handover(msgspec.Struct, frozen=True, gc=False):
    """A sequence whose prompt is computed; all of its KV has reached the decode engine at `ready_s`."""

    sequence: PromptSequence
    ready_s: float


class PrefillRole(EngineModel):
    """A prefill engine: one prompt at a time, by the reference model's rules, and a link that sends the KV.

    The last event of a sequence is FirstTokenEvent; Finished follows only if the output is one token. The cache may
    evict a prompt's blocks while its last layer is still being sent, since the sender copies them first. Mutable state
    besides the model's: `_whole` (sequences in progress as they were submitted), `_started` (start of the running
    prefill), the link, and `_handovers` (not yet taken).
    """

    def __init__(self, profile: EngineProfile) -> None:
        # Only the current prompt is on the device, so decode memory is no limit here.
        super().__init__(replace(profile, device_tokens=0), emit_tokens=False)
        self.link = KvLink(profile)
        self._whole: dict[str, PromptSequence] = {}
        self._started_s = 0.0
        self._handovers: list[Handover] = []

    @override
    def submit(self, sequence: PromptSequence, now: float) -> None:
        """Queue a sequence that arrives at `now`; raise ValueError if it can never run."""
        if sequence.output_tokens < 1:
            raise ValueError("a sequence needs at least one output token")
        super().submit(replace(sequence, output_tokens=1), now)
        self._whole[sequence.request_id] = sequence

    @override
    def advance(self, now: float) -> list[EngineEvent]:
        """Advance time to `now` and return the events in order; handovers are kept until they are taken."""
        kept: list[EngineEvent] = []
        for event in super().advance(now):
            if isinstance(event, Finished):
                # The decode engine ends it.
                if self._whole.pop(event.request_id).output_tokens > 1:
                    continue
            elif isinstance(event, PrefillStarted):
                self._started_s = event.at_s
            elif isinstance(event, FirstTokenEvent):
                self._hand_over(event)
            kept.append(event)
        return kept

    @override
    def abort(self, request_id: str, now: float) -> bool:
        """Remove a request at once; a request that was handed over is no longer present."""
        self._whole.pop(request_id, None)
        return super().abort(request_id, now)

    def take_handovers(self) -> list[Handover]:
        """Return the handovers since the last call, in order."""
        taken, self._handovers = self._handovers, []
        return taken

    @override
    def check(self) -> None:
        """Raise AssertionError unless the model's parts and the sequences in progress are consistent."""
        super().check()
        if set(self._whole) != self._live:
            raise AssertionError("a sequence under way is forgotten")

    def _hand_over(self, event: FirstTokenEvent) -> None:
        sequence = self._whole[event.request_id]
        if sequence.output_tokens == 1:
            return
        computed = sequence.prompt_tokens - event.cached_tokens
        ready_s = self.link.send(event.cached_tokens, computed, self._started_s, event.at_s)
        self._handovers.append(Handover(sequence, ready_s))


class DecodeRole(EngineModel):
    """A decode engine: sequences join the next step after their KV has arrived and fits (Mooncake §3.1, step 4).

    The model treats an arrived prompt as a prefill that takes no time. Its first token was generated elsewhere, so only
    Token and Finished are reported. Sequences that do not fit yet wait in host memory, which is not limited here.
    """

    def __init__(self, profile: EngineProfile, *, emit_tokens: bool = False) -> None:
        loaded = replace(
            profile,
            prefill_base_s=0.0,
            prefill_per_token_s=0.0,
            prefill_per_token_squared_s=0.0,
            prefill_per_hit_token_s=0.0,
            device_tokens=profile.device_tokens or DEVICE_TOKENS,
        )
        super().__init__(loaded, emit_tokens=emit_tokens)

    @property
    @override
    def kv_usage(self) -> float:
        """Share of the device memory that sequences use, 0..1."""
        return self._memory / self.profile.device_tokens

    @override
    def submit(self, sequence: PromptSequence, now: float) -> None:
        """Queue a sequence whose KV has arrived; raise ValueError if it can never fit or has only one output token."""
        if sequence.output_tokens < 2:
            raise ValueError("one output token is made by prefill")
        # Without keys: memory is counted in tokens here, and no later prompt is matched.
        super().submit(replace(sequence, keys=()), now)

    @override
    def advance(self, now: float) -> list[EngineEvent]:
        """Advance time to `now` and return token and end events in order."""
        return [event for event in super().advance(now) if isinstance(event, Token | Finished)]


class PrefillDecodeEngine:
    """One prefill and one decode device behind one interface. Times are seconds on one clock.

    Mutable state: the two roles, and `_arriving` (heap of ready time, order, and sequence for handovers still on the
    link).
    """

    def __init__(self, profile: EngineProfile, *, emit_tokens: bool = False) -> None:
        self.profile = profile
        self.prefill = PrefillRole(profile)
        self.decode = DecodeRole(profile, emit_tokens=emit_tokens)
        self._arriving: list[tuple[float, int, PromptSequence]] = []
        self._order = 0

    @property
    def running(self) -> int:
        """Number of sequences that prefill, are handed over, or decode."""
        return self.prefill.running + len(self._arriving) + self.decode.running

    @property
    def waiting(self) -> int:
        """Number of sequences whose prefill has not started, or whose KV has arrived but does not fit."""
        return self.prefill.waiting + self.decode.waiting

    @property
    def cached_blocks(self) -> int:
        """Number of blocks in the prefill device's cache."""
        return self.prefill.cached_blocks

    @property
    def kv_usage(self) -> float:
        """Share of the decode device's memory that sequences use, 0..1."""
        return self.decode.kv_usage

    def submit(self, sequence: PromptSequence, now: float) -> None:
        """Queue a sequence that arrives at `now`; raise ValueError if it can never run or is already present."""
        memory = sequence.prompt_tokens + sequence.output_tokens
        if sequence.output_tokens > 1 and memory > self.decode.profile.device_tokens:
            raise ValueError(f"{memory} tokens can never fit into {self.decode.profile.device_tokens}")
        name = sequence.request_id
        if self.decode.holds(name) or any(entry[2].request_id == name for entry in self._arriving):
            raise ValueError(f"request {name} is in the engine already")
        self.prefill.submit(sequence, now)

    def next_event_time(self) -> float | None:
        """Return the next time at which `advance` has work to do; None if the engine is empty."""
        times = [self.prefill.next_event_time(), self.decode.next_event_time()]
        if self._arriving:
            times.append(self._arriving[0][0])
        return min((time for time in times if time is not None), default=None)

    def advance(self, now: float) -> list[EngineEvent]:
        """Advance time to `now` and return the events in order."""
        events: list[EngineEvent] = []
        while (due := self.next_event_time()) is not None and due <= now:
            # Prefill first, so that what arrives at this moment can join the next decode step.
            events += self.prefill.advance(due)
            for handover in self.prefill.take_handovers():
                self._order += 1
                heappush(self._arriving, (handover.ready_s, self._order, handover.sequence))
            while self._arriving and self._arriving[0][0] <= due:
                self.decode.submit(heappop(self._arriving)[2], due)
            events += self.decode.advance(due)
        # Nothing more is due: this only moves the clocks.
        self.prefill.advance(now)
        self.decode.advance(now)
        return events

    def abort(self, request_id: str, now: float) -> bool:
        """Remove a request at once, in any state; return False if it is absent."""
        if self.prefill.abort(request_id, now) or self.decode.abort(request_id, now):
            return True
        kept = [entry for entry in self._arriving if entry[2].request_id != request_id]
        removed = len(kept) < len(self._arriving)
        self._arriving = kept
        heapify(self._arriving)
        return removed

    def held_blocks(self, keys: Sequence[int]) -> int:
        """Return how many leading blocks of `keys` are in the prefill device's cache."""
        return self.prefill.held_blocks(keys)

    def receive_blocks(self, keys: Sequence[int], now: float) -> list[EngineEvent]:
        """Add leading blocks to the prefill device's cache; return the stored and evicted keys."""
        return self.prefill.receive_blocks(keys, now)

    def check(self) -> None:
        """Raise AssertionError unless each sequence is in exactly one part."""
        self.prefill.check()
        self.decode.check()
        names = [entry[2].request_id for entry in self._arriving]
        if len(set(names)) != len(names) or any(self.prefill.holds(name) or self.decode.holds(name) for name in names):
            raise AssertionError("a sequence is in two places")
