"""Runs the engine model in scaled real time, with one timer, token streams, KV events, and metrics."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from kvstore.connector.engine_params import LoadInstruction
from kvstore.events.kv_events import AllBlocksCleared, BlockRemoved, BlockStored, KvEvent
from kvstore.keys.block_keys import continued_keys
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
from simulator.engine_models.prefill_handoff import PrefillHandoffEngine
from simulator.engine_models.simulated_engine import PromptSequence
from simulator.engine_server import sglang
from simulator.engine_server.answers.token_stream import TokenStream
from simulator.engine_server.engine_metrics import SimulatedEngineMetrics
from simulator.engine_server.event_publisher import EventPublisher
from simulator.engine_server.faults import BUSY_S, COMPILE_S, Fault, ModelClock, ReportedMetrics, crowd, rate_under
from simulator.engine_server.node_store.answer_blocks import answer_order, answer_span, with_answer
from simulator.engine_server.node_store.node_store import node_store
from simulator.engine_server.request_bodies import PlacedMedium, extra_keys
from simulator.engine_server.settings import EngineSettings

_WINDOW, _FULL = 0, 1
"""Cache groups of a hybrid model."""
_STOPPED_POLL_S = 0.1
"""Interval in seconds for checking a stopped clock."""


@dataclass(slots=True, eq=False)
class _Live:
    """One request in the engine: its tokens until they are published, its stream, and its times (model seconds)."""

    sequence: PromptSequence
    tokens: array[int] | None
    stream: TokenStream
    reason: str
    arrived: float
    loaded: bool
    salt: str
    lora: str
    media: tuple[PlacedMedium, ...]
    order: LoadInstruction | None
    voice: int
    started: float = 0.0
    first: float = 0.0
    last: float = 0.0


class EngineRuntime:
    """Owns the model and all mutable state around it. Used from a single event loop.

    Mutable state: `_live` (requests by id), `_clock`, `_reported` (the published metrics), `_timer` and `_timer_at`
    (the one pending wake-up, model seconds), `_outbox` (KV events of the current batch), `_clear_pending` (a cache
    reset not yet published) and `closing`.
    """

    def __init__(self, settings: EngineSettings, publisher: EventPublisher) -> None:
        self.settings = settings
        self.model = PrefillHandoffEngine(settings.profile, window=settings.sliding_window)
        self.metrics = SimulatedEngineMetrics(settings, self.model)
        self.closing = False
        self._publisher = publisher
        self.store = node_store(settings)
        if self.store is not None:
            self.metrics.watch_store(self.store)
        self._scale = settings.time_scale
        self._clock = ModelClock(settings.time_scale)
        self._reported = ReportedMetrics()
        self.templated = self._reported.templated
        self._compiling: asyncio.TimerHandle | None = None
        self._live: dict[str, _Live] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._outbox: list[KvEvent] = []
        self._clear_pending = False
        self._loaded_loras: dict[str, None] = {}

    @property
    def load(self) -> int:
        """Number of requests in the engine, including queued ones."""
        return len(self._live)

    @property
    def reported_load(self) -> int:
        """The load that the engine reports."""
        return self._reported.load(len(self._live))

    def reported_metrics(self) -> bytes:
        """Return the metrics that the engine publishes."""
        if self.settings.lora:
            running = dict.fromkeys(item.lora for item in self._live.values() if item.lora)
            self.metrics.adapters(list(running), self.settings.max_loras)
        text = self._reported.text(self.metrics.render())
        return text if self.settings.flavor == "vllm" else sglang.metrics(text, self.settings)

    @property
    def probe_delay_s(self) -> float:
        """Seconds by which responses to probes are delayed."""
        return BUSY_S if self._reported.fault == "busy" else 0.0

    def set_fault(self, fault: Fault) -> None:
        """Set the engine's fault; empty for none."""
        now = self._catch_up()
        for timer in (self._compiling, self._timer):
            if timer is not None:
                timer.cancel()
        self._compiling = self._timer = None
        if fault == "evict":
            self._received(crowd(self.settings.profile.num_blocks), array("I"), now, "")
        if fault == "compile":
            self._compiling = asyncio.get_running_loop().call_later(COMPILE_S, self.set_fault, "")
        self._reported.begin(fault)
        # The same model time is now due at another real one, so the timer is set again.
        self._clock.run_at(rate_under(fault))
        self._schedule()

    @property
    def sleeps(self) -> bool:
        """Whether the engine is in sleep mode."""
        return self._reported.fault == "sleep"

    def sleep(self) -> None:
        """Drop the prefix cache and generate nothing until `wake_up`, as vLLM does at level 1."""
        self.reset_cache()
        self.set_fault("sleep")

    def wake_up(self) -> None:
        """End sleep mode."""
        if self.sleeps:
            self.set_fault("")

    def submit(
        self,
        sequence: PromptSequence,
        tokens: array[int],
        reason: str,
        *,
        leg: Literal["", "prefill", "decode"] = "",
        salt: str = "",
        lora: str = "",
        media: tuple[PlacedMedium, ...] = (),
        order: LoadInstruction | None = None,
        voice: int = 0,
    ) -> TokenStream:
        """Start a request. Its `tokens` fill sequence.keys under `salt`; its stream will end with `reason`.

        `lora` is the adapter to use, empty for none. `order` states how nodes keep its blocks, and `voice` names its
        answer. A prefill leg's prompt is held for other engines after it ends; a decode leg's prompt was loaded from
        another engine.
        """
        # Time until now passed at the old rate.
        now = self._catch_up()
        if lora:
            sequence = self._with_adapter(sequence, lora)
        submits = {"": self.model.submit, "prefill": self.model.submit_handing, "decode": self.model.submit_loaded}
        submits[leg](sequence, now)
        stream = TokenStream(sequence.request_id, self.settings.stream_interval)
        self._live[sequence.request_id] = _Live(
            sequence,
            tokens,
            stream,
            reason,
            now,
            loaded=leg == "decode",
            salt=salt,
            lora=lora,
            media=media,
            order=order,
            voice=voice,
        )
        self._schedule()
        return stream

    def _with_adapter(self, sequence: PromptSequence, lora: str) -> PromptSequence:
        """Return the sequence with the time to load its adapter, which replaces the least recently used adapter."""
        loaded = lora in self._loaded_loras
        self._loaded_loras.pop(lora, None)
        self._loaded_loras[lora] = None
        if len(self._loaded_loras) > self.settings.max_loras:
            del self._loaded_loras[next(iter(self._loaded_loras))]
        return sequence if loaded else msgspec.structs.replace(sequence, setup_s=self.settings.lora_load_s)

    def abort(self, request_id: str) -> None:
        """Remove a request at once and end its stream; has no effect if it is already gone."""
        if request_id not in self._live:
            return
        now = self._catch_up()
        # Catching up may have finished it.
        live = self._live.pop(request_id, None)
        if live is not None:
            self.model.abort(request_id, now)
            live.stream.break_off()
        self._schedule()

    def reset_cache(self) -> bool:
        """Drop the prefix cache and publish that with the next batch, as vLLM does. Return False while requests run."""
        self._catch_up()
        done = self.model.reset_cache()
        self._clear_pending = self._clear_pending or done
        self._schedule()
        return done

    def take_in(self, keys: Sequence[int], tokens: array[int], salt: str, more: Sequence[KvEvent] = ()) -> int:
        """Put leading blocks from a node into the cache, publish them and `more`; return how many are then held."""
        self._received(keys, tokens, self._catch_up(), salt)
        self._outbox += more
        if self._outbox:
            self._publish()
        self._schedule()
        return self.model.held_blocks(keys)

    def let_go(self, request_id: str) -> bool:
        """Release a held prompt; return False if none is held."""
        self._catch_up()
        done = self.model.let_go(request_id)
        self._schedule()
        return done

    async def until(self, model_s: float) -> None:
        """Return when the model's clock has reached this time."""
        while (left_s := self._clock.due_in(model_s)) != 0.0:
            pause_s = _STOPPED_POLL_S if left_s is None else left_s
            await asyncio.sleep(pause_s)

    def close(self) -> None:
        """End every stream and stop the clock; later requests are rejected."""
        self.closing = True
        if self._timer is not None:
            self._timer.cancel()
        for live in self._live.values():
            live.stream.break_off()
        self._live.clear()
        if self.store is not None:
            self.store.close()

    def _catch_up(self) -> float:
        """Advance the model to the current time and return that time."""
        now = self._clock.now()
        self._dispatch(self.model.advance(now))
        return now

    def _schedule(self) -> None:
        due = self.model.next_event_time()
        if self._timer is not None:
            if due == self._timer_at:
                return
            self._timer.cancel()
            self._timer = None
        if due is None or self.closing:
            return
        delay_s = self._clock.due_in(due)
        if delay_s is None:
            return
        self._timer_at = due
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._wake)

    def _wake(self) -> None:
        self._clock.has_come_to(self._timer_at)
        self._timer = None
        self._catch_up()
        self._schedule()

    def _dispatch(self, events: list[EngineEvent]) -> None:
        tokens = 0
        for event in events:
            if isinstance(event, Token):
                tokens += 1
                self._on_token(event)
            elif isinstance(event, FirstTokenEvent):
                self._on_first_token(event)
            elif isinstance(event, Finished):
                self._on_finished(event)
            elif isinstance(event, PrefillStarted):
                self._on_prefill(event)
            elif isinstance(event, TierChanged):
                # As vLLM's OffloadingConnector publishes CPU memory by default: hashes alone.
                self._outbox += [BlockStored([key], None, [], 0, medium="CPU") for key in event.stored]
                self._outbox += [BlockRemoved([key], medium="CPU") for key in event.removed]
            elif isinstance(event, WindowChanged):
                self._on_window(event)
            else:
                self._on_blocks(event)
        if tokens:
            self.metrics.generation_tokens.inc(tokens)
            self.metrics.iteration_tokens.observe(tokens)
        if self._outbox:
            self._publish()

    def _on_token(self, event: Token) -> None:
        live = self._live[event.request_id]
        self.metrics.inter_token.observe((event.at_s - live.last) / self._scale)
        live.last = event.at_s
        live.stream.add_token()

    def _on_prefill(self, event: PrefillStarted) -> None:
        live = self._live[event.request_id]
        live.started = event.at_s
        live.stream.cached_tokens = event.cached_tokens
        self.metrics.queue.observe((event.at_s - live.arrived) / self._scale)
        if live.loaded:
            self.metrics.loaded(live.sequence.prompt_tokens)
        else:
            self.metrics.prompt(live.sequence.prompt_tokens, event.cached_tokens)

    def _on_first_token(self, event: FirstTokenEvent) -> None:
        live = self._live[event.request_id]
        live.first = live.last = event.at_s
        if self.store is None:
            # Its blocks were published just before, and nothing else needs the ids.
            live.tokens = None
        self.metrics.ttft.observe((event.at_s - live.arrived) / self._scale)
        self.metrics.prefill.observe((event.at_s - live.started) / self._scale)
        self.metrics.generation_tokens.inc()
        self.metrics.iteration_tokens.observe(max(1, live.sequence.prompt_tokens - event.cached_tokens))
        live.stream.add_token()

    def _on_finished(self, event: Finished) -> None:
        live = self._live.pop(event.request_id)
        metrics, scale = self.metrics, self._scale
        metrics.e2e.observe((event.at_s - live.arrived) / scale)
        metrics.inference.observe((event.at_s - live.started) / scale)
        metrics.decode.observe((event.at_s - live.first) / scale)
        if event.output_tokens > 1:
            metrics.per_token.observe((event.at_s - live.first) / scale / (event.output_tokens - 1))
        metrics.output_length.observe(event.output_tokens)
        metrics.success[live.reason].inc()
        live.stream.finish()
        self._keep_answer(live, event)

    def _keep_answer(self, live: _Live, event: Finished) -> None:
        """Keep the blocks that the answer has filled, here and on the node. Engines without a node drop them."""
        if self.store is None or live.tokens is None or live.media:
            return
        size, tokens = self.settings.profile.block_tokens, with_answer(live.tokens, live.voice, event.output_tokens)
        first, end = answer_span(live.tokens, tokens, size)
        if 0 < first < end:
            keys = continued_keys(live.sequence.keys[:first], tokens, end, size)
            self._received(keys, tokens, event.at_s, live.salt, live.lora)
            self.store.save(tokens, first, end, live.salt, answer_order(live.order, tokens, first, end, size))

    def _received(self, keys: Sequence[int], tokens: array[int], at_s: float, salt: str, lora: str = "") -> None:
        for event in self.model.receive_blocks(keys, at_s):
            if isinstance(event, BlocksRemoved):
                self._on_removed(event)
            elif isinstance(event, BlocksStored) and tokens:
                self._publish_stored(event, tokens, salt, lora)

    def _on_blocks(self, event: BlocksStored | BlocksRemoved) -> None:
        if isinstance(event, BlocksRemoved):
            self._on_removed(event)
            return
        live = self._live[event.request_id]
        tokens = live.tokens
        if tokens is None:
            raise AssertionError("blocks are stored once, at the end of prefill")
        self._publish_stored(event, tokens, live.salt, live.lora, live.media)
        if self.store is not None and not event.loaded:
            self.store.save(tokens, event.first_block, event.first_block + len(event.keys), live.salt, live.order)

    def _on_removed(self, event: BlocksRemoved) -> None:
        group = _FULL if self.settings.sliding_window else None
        # One event per block, as vLLM publishes evictions.
        self._outbox.extend(BlockRemoved([key], group_idx=group) for key in event.keys)

    def _on_window(self, event: WindowChanged) -> None:
        """Publish the events of the window group. They precede full attention's, and list fewer blocks than their
        token ids fill.
        """
        self._outbox += [BlockRemoved([key], group_idx=_WINDOW) for key in event.removed]
        live = self._live[event.request_id]
        if live.tokens is None:
            raise AssertionError("windows are kept once, at the end of prefill")
        keys, first = live.sequence.keys, event.first_block
        stored = BlockStored(
            [keys[position] for position in event.positions],
            keys[first - 1] if first else None,
            self._span(live.tokens, first, len(keys)),
            self.settings.profile.block_tokens,
            lora_name=live.lora or None,
            extra_keys=self._extra_keys(event.positions, live.salt, live.lora, live.media),
            group_idx=_WINDOW,
            kv_cache_spec_kind="sliding_window",
            kv_cache_spec_sliding_window=self.settings.sliding_window,
        )
        self._outbox.append(stored)

    def _publish_stored(
        self,
        event: BlocksStored,
        tokens: array[int],
        salt: str,
        lora: str = "",
        media: tuple[PlacedMedium, ...] = (),
    ) -> None:
        positions = range(event.first_block, event.first_block + len(event.keys))
        stored = BlockStored(
            list(event.keys),
            event.parent,
            self._span(tokens, positions.start, positions.stop),
            self.settings.profile.block_tokens,
            lora_name=lora or None,
            extra_keys=self._extra_keys(positions, salt, lora, media),
        )
        if self.settings.sliding_window:
            stored = msgspec.structs.replace(stored, group_idx=_FULL, kv_cache_spec_kind="full_attention")
        self._outbox.append(stored)

    def _span(self, tokens: array[int], first: int, end: int) -> list[int]:
        return tokens[first * (size := self.settings.profile.block_tokens) : end * size].tolist()

    def _extra_keys(
        self, positions: Sequence[int], salt: str, lora: str, media: tuple[PlacedMedium, ...]
    ) -> list[Any] | None:
        """Return what distinguishes these prompt blocks besides tokens (salt, adapter, media); None if nothing does."""
        # As in vLLM, only the first block is salted: the chain carries it to the others.
        salts = [("cache_salt", salt)] if salt and positions and positions[0] == 0 else []
        if not (salts or lora or media):
            return None
        size = self.settings.profile.block_tokens
        named: list[list[Any]] = [
            [*([lora] if lora else []), *extra_keys(media, position * size, size)] for position in positions
        ]
        if salts:
            named[0] += salts
        return [item or None for item in named]

    def _publish(self) -> None:
        if self._clear_pending:
            # The blocks of this batch were stored after the reset.
            self._outbox.insert(0, AllBlocksCleared())
            self._clear_pending = False
        events = self._outbox if self.settings.flavor == "vllm" else sglang.sglang_events(self._outbox)
        self._publisher.publish(events)
        self._outbox = []
