"""Continuous batching with chunked prefill and paged memory, as in vLLM's V1 scheduler.

Each step has a budget of `max_batched_tokens`. Running sequences get one token each. The remaining budget goes to
chunks of prompts, first those in progress and then waiting ones, by priority and arrival. Memory is allocated block by
block as sequences grow. When memory is full, the running sequence that is last by priority and arrival is preempted: it
loses all its blocks and waits to be recomputed with its tokens so far, except for blocks that are still in the prefix
cache. A block, of a prompt or of output, enters the cache for all sequences at the end of the step that fills it. A
prompt's partial last block is never cached. With `prefill_first`, a step with chunks gives running sequences no token,
and a sequence whose prefix is being computed waits for it, as in SGLang.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from typing_extensions import override

from simulator.engine_models.block_pool import BlockPool
from simulator.engine_models.block_table import BlockTable
from simulator.engine_models.decode_batch import DecodeBatch
from simulator.engine_models.engine_events import (
    BlocksRemoved,
    BlocksStored,
    EngineEvent,
    Finished,
    FirstTokenEvent,
    PrefillStarted,
    Token,
)
from simulator.engine_models.engine_profile import EngineProfile
from simulator.engine_models.free_blocks import free_blocks
from simulator.engine_models.queued_engine import QueuedEngine
from simulator.engine_models.simulated_engine import PromptSequence


@dataclass(slots=True, eq=False)
class ChunkedWork:
    """A sequence in the engine: its blocks, the tokens generated before it last joined the batch, and its current
    chunk.
    """

    sequence: PromptSequence
    order: int
    table: BlockTable
    generated: int = 0
    chunk: int = 0
    cached_tokens: int = -1

    @property
    def rank(self) -> tuple[int, int]:
        """Priority and arrival. The lowest rank runs first, the highest is preempted first."""
        return self.sequence.priority, self.order

    @property
    def loaded_blocks(self) -> int:
        """Number of leading blocks that were loaded for the sequence; 0 after a preemption, which drops them."""
        return min(self.sequence.loaded_blocks, len(self.sequence.keys)) if self.cached_tokens < 0 else 0

    @property
    def wanted(self) -> int:
        """Tokens to compute before the next token is generated."""
        return self.sequence.prompt_tokens + self.generated


class ChunkedEngine(QueuedEngine[ChunkedWork]):
    """An engine with chunked prefill.

    Mutable state besides the queue's: `_prefilling` and `_decoding` (sequences by id) with `_batch`, the pool,
    `_growing` (decoding sequences that need a block before their next token), `_live` (ids in the engine), `_preempted`
    (whether the start of this step preempted a sequence), and the counter `preemptions`.
    """

    def __init__(self, profile: EngineProfile, *, emit_tokens: bool = False, pool: BlockPool | None = None) -> None:
        if profile.max_running > profile.max_batched_tokens:
            raise ValueError(
                f"max_running {profile.max_running} is over max_batched_tokens {profile.max_batched_tokens}: "
                "each running sequence takes one token of a step"
            )
        super().__init__(profile)
        self.preemptions = 0
        self._emit_tokens = emit_tokens
        self._pool = BlockPool(profile.num_blocks, free_blocks(profile)) if pool is None else pool
        self._batch = DecodeBatch(profile)
        self._prefilling: dict[str, ChunkedWork] = {}
        self._decoding: dict[str, ChunkedWork] = {}
        self._growing: dict[str, ChunkedWork] = {}
        self._live: set[str] = set()
        self._preempted = False

    @property
    def running(self) -> int:
        """Number of sequences that prefill or decode."""
        return len(self._prefilling) + len(self._decoding)

    @property
    def running_tokens(self) -> int:
        """Number of tokens that the decoding sequences have generated, as of the end of the last run of steps."""
        return sum([work.generated + self._batch.made(name) for name, work in self._decoding.items()])

    @property
    def cached_blocks(self) -> int:
        """Number of distinct cached blocks, in use or not."""
        return len(self._pool)

    @property
    def kv_usage(self) -> float:
        """Share of the blocks that running sequences hold, 0..1."""
        return self._pool.held / self._pool.capacity

    @property
    def kv_tokens(self) -> int:
        """Tokens of running sequences that fit into memory."""
        return self.profile.num_blocks * self.profile.block_tokens

    def submit(self, sequence: PromptSequence, now: float) -> None:
        """Queue a sequence that arrives at `now`; raise ValueError if it can never run."""
        self._forward(now)
        if sequence.request_id in self._live:
            raise ValueError(f"request {sequence.request_id} is in the engine already")
        if sequence.prompt_tokens < 1 or sequence.output_tokens < 1:
            raise ValueError("a sequence needs at least one prompt token and one output token")
        # No token attends to the last one, so it needs no slot.
        blocks = -(-(sequence.prompt_tokens + sequence.output_tokens - 1) // self.profile.block_tokens)
        if blocks > self.profile.num_blocks:
            raise ValueError(f"{blocks} blocks can never fit into {self.profile.num_blocks}")
        self._order += 1
        self._live.add(sequence.request_id)
        table = BlockTable(self._pool, sequence, self._order, self.profile.block_tokens)
        self._enqueue(sequence, ChunkedWork(sequence, self._order, table), now)
        if self._busy_until is not None:
            # The new sequence may join the batch at the next step.
            self._busy_until = self._batch.cut_run(now, self._busy_until)

    def abort(self, request_id: str, now: float) -> bool:
        """Remove a request at once, in any state; return False if it is absent."""
        self._forward(now)
        if request_id not in self._live:
            return False
        self._live.discard(request_id)
        work = self._prefilling.get(request_id) or self._decoding.get(request_id)
        if work is None:
            self._unqueue(request_id)
            return True
        if self._busy_until is not None:
            # The sequence has received the tokens of the finished steps.
            self._busy_until = self._batch.settle_run(now, self._busy_until)
        self._stop(work)
        work.table.release()
        if not self.running:
            self._stop_operation(now)
        return True

    def held_blocks(self, keys: Sequence[int]) -> int:
        """Return how many leading blocks of `keys` are in the cache."""
        return self._pool.match(keys)

    def receive_blocks(self, keys: Sequence[int], now: float) -> list[EngineEvent]:
        """Put leading blocks from another engine into free memory; return the stored and evicted keys."""
        held = self._pool.match(keys)
        # Held meanwhile, so that they are not evicted for their own successors.
        shared = self._pool.share(keys[:held])
        new = tuple(keys[held : held + self._pool.free])
        removed = self._pool.take(len(new))
        parents = [keys[held - 1] if held else None, *new]
        filled = [self._pool.fill(key, parent)[0] for key, parent in zip(new, parents, strict=False)]
        self._pool.release([*shared, *filled], 0)
        events: list[EngineEvent] = [BlocksRemoved(now, tuple(removed))] if removed else []
        if new:
            events.append(BlocksStored("", now, held, new, keys[held - 1] if held else None))
        return events

    def check(self) -> None:
        """Raise AssertionError unless queue, running sets, blocks, and sums are consistent."""
        self._pool.check()
        self._batch.check()
        running = [*self._prefilling.values(), *self._decoding.values()]
        ids = self._queued_ids() + [work.sequence.request_id for work in running]
        if len(ids) != len(self._live) or set(ids) != self._live:
            raise AssertionError("a request is lost or counted twice")
        if self.running > self.profile.max_running:
            raise AssertionError(f"{self.running} running sequences are over {self.profile.max_running}")
        if self._batch.names() != list(self._decoding):
            raise AssertionError("the batch does not hold the decoding sequences")
        if self._pool.held != len({id(block) for work in running for block in work.table.blocks}) + sum(
            work.table.unfilled for work in running
        ):
            raise AssertionError("the blocks of running sequences are not the held ones")
        for name, work in self._decoding.items():
            if work.generated + self._batch.made(name) >= work.sequence.output_tokens:
                raise AssertionError(f"{name} should have finished")
        if self._busy_until is not None and not running:
            raise AssertionError("the engine works on nothing")

    @override
    def _resumes(self) -> bool:
        return bool(self._prefilling or self._decoding)

    @override
    def _start_operation(self, at_s: float, events: list[EngineEvent]) -> None:
        self._see_arrivals(at_s)
        loaded = self._plan_step(at_s, events)
        chunks = [(work.chunk, work.table.computed + work.chunk) for work in self._prefilling.values() if work.chunk]
        self._busy_until = self._end_of_step(at_s, chunks, loaded)

    def _plan_step(self, at_s: float, events: list[EngineEvent]) -> int:
        """Set the chunks of a step, and start waiting sequences; return the tokens loaded from the cache."""
        self._preempted = False
        for work in by_rank(self._growing):
            # An earlier one may have preempted this one.
            if work.sequence.request_id in self._growing and self._claim(work, 1, at_s, events):
                del self._growing[work.sequence.request_id]
        return self._admit(self._continue_prompts(at_s, events), at_s, events)

    def _end_of_step(self, at_s: float, chunks: Sequence[tuple[int, int]], loaded_tokens: int) -> float | None:
        batch = self._batch
        # After a preemption no sequence was admitted; the next step may admit one, so it must not be skipped.
        alone = not chunks and not self._emit_tokens and not (self._preempted and self._waiting)
        if alone:
            return batch.start_run(at_s, self._arrivals[0][0] if self._arrivals else None)
        decodes = not (chunks and self.profile.prefill_first)
        batch.start_step(decodes=decodes)
        seconds = self.profile.mixed_step_s(len(batch) if decodes else 0, batch.context, chunks)
        return at_s + seconds + self.profile.prefill_per_hit_token_s * loaded_tokens

    def _continue_prompts(self, at_s: float, events: list[EngineEvent]) -> int:
        """Give prompts in progress their next chunks; return the remaining token budget of the step."""
        # Prompts that go first are computed without the tokens of running sequences.
        budget = self.profile.max_batched_tokens - (0 if self.profile.prefill_first else len(self._decoding))
        for work in by_rank(self._prefilling):
            work.chunk = 0
            if work.sequence.request_id not in self._prefilling:
                continue
            # A preemption for a prompt removes a running sequence, whose token is then not needed.
            chunk = min(budget, work.wanted - work.table.computed)
            if chunk and self._claim(work, work.table.blocks_for(chunk), at_s, events):
                work.chunk = chunk
                budget -= chunk
        return budget

    def _admit(self, budget: int, at_s: float, events: list[EngineEvent]) -> int:
        """Start waiting sequences while budget, batch, and memory allow; return the tokens loaded from the cache."""
        loaded, passed = 0, list[tuple[int, int, str, ChunkedWork]]()
        computing = self._computing() if self._waiting and self.profile.prefill_first else set[int]()
        # As in vLLM, a step that preempted a sequence admits none.
        while self._waiting and budget and not self._preempted and self.running < self.profile.max_running:
            work = self._waiting[0][3]
            size, hits = self.profile.block_tokens, work.table.hits(work.wanted)
            if computing and not computing.isdisjoint(work.table.keys_to_compute(hits, work.wanted)[:1]):
                passed.append(heappop(self._waiting))
                continue
            came = max(0, min(work.loaded_blocks, (work.wanted - 1) // size) - hits)
            hit_tokens = (hits + came) * size
            chunk = min(budget, work.wanted - hit_tokens)
            removed = work.table.open(hits, came, chunk, self._reserved_blocks())
            if removed is None:
                break
            self._next_waiting()
            if removed:
                events.append(BlocksRemoved(at_s, tuple(removed)))
            if came:
                # The load has its own room, which no other sequence takes away.
                self._store(work, hit_tokens, at_s, events, loaded=True)
            self._prefilling[work.sequence.request_id] = work
            work.chunk = chunk
            budget -= chunk
            loaded += hit_tokens
            if self.profile.prefill_first:
                computing.update(work.table.keys_to_compute(hits + came, work.wanted))
            # A preempted sequence comes here again, but its prefill is reported once.
            if work.cached_tokens < 0:
                work.cached_tokens = hit_tokens
                events.append(PrefillStarted(work.sequence.request_id, at_s, hit_tokens))
        for entry in passed:
            heappush(self._waiting, entry)
        return loaded

    def _computing(self) -> set[int]:
        """Return the keys of the prompt blocks that are being computed."""
        works = self._prefilling.values()
        return {
            key
            for work in works
            for key in work.table.keys_to_compute(work.table.computed // self.profile.block_tokens, work.wanted)
        }

    def _reserved_blocks(self) -> int:
        """Return the blocks to keep free for answers when one more sequence starts; 0 in an idle engine."""
        reserve = self.profile.reserve_tokens
        if not reserve or not self.running:
            return 0
        return -(-reserve // self.profile.block_tokens) + max(0, self._answers_to_come())

    def _answers_to_come(self) -> int:
        """Return the blocks that running sequences lack of their reserves, less those held beyond a reserve."""
        # Counted in blocks, which stay the same until the next sequence is due.
        reserve, size = self.profile.reserve_tokens, self.profile.block_tokens
        running = [*self._prefilling.values(), *self._decoding.values()]
        return sum([-(-(work.sequence.prompt_tokens + reserve) // size) - work.table.held for work in running])

    def _claim(self, work: ChunkedWork, blocks: int, at_s: float, events: list[EngineEvent]) -> bool:
        """Allocate blocks for a running sequence, preempting later ones if needed. Return False if it is preempted
        itself.
        """
        while self._pool.free < blocks:
            running = [*self._decoding.values(), *self._prefilling.values()]
            victim = max(running, key=_rank)
            self._preempt(victim)
            if victim is work:
                return False
        removed = work.table.grow(blocks)
        if removed:
            events.append(BlocksRemoved(at_s, tuple(removed)))
        return True

    def _preempt(self, work: ChunkedWork) -> None:
        self.preemptions += 1
        self._preempted = True
        self._stop(work)
        work.table.release()
        heappush(self._waiting, (*work.rank, work.sequence.request_id, work))

    def _stop(self, work: ChunkedWork) -> None:
        name = work.sequence.request_id
        work.chunk = 0
        self._growing.pop(name, None)
        if self._prefilling.pop(name, None) is None:
            del self._decoding[name]
            work.generated += self._batch.leave(name)

    @override
    def _finish_operation(self, at_s: float, events: list[EngineEvent]) -> None:
        due = self._batch.finish_run()
        if self._emit_tokens and self._batch.decodes:
            # Before the sequences that are due leave the batch.
            events.extend(
                Token(name, at_s, work.generated + self._batch.made(name) - 1) for name, work in self._decoding.items()
            )
        for name in due:
            self._attend(self._decoding[name], at_s, events)
        self._finish_chunks([work for work in self._prefilling.values() if work.chunk], at_s, events)

    def _finish_chunks(self, works: Sequence[ChunkedWork], at_s: float, events: list[EngineEvent]) -> None:
        for work in works:
            self._store(work, work.table.computed + work.chunk, at_s, events)
            work.chunk = 0
            if work.table.computed == work.wanted:
                del self._prefilling[work.sequence.request_id]
                work.generated += 1
                self._token(work, at_s, events)
                self._decode(work, at_s, events)

    def _attend(self, work: ChunkedWork, at_s: float, events: list[EngineEvent]) -> None:
        """Store the block that a decoding sequence has filled; finish or continue the sequence."""
        name = work.sequence.request_id
        made = work.generated + self._batch.made(name)
        # The KV of the latest token is only computed by the step after it.
        self._store(work, work.sequence.prompt_tokens + made - 1, at_s, events)
        if made == work.sequence.output_tokens:
            self._stop(work)
            self._end(work, at_s, events)
        else:
            self._batch.rearm(name, self._due_in(work, made))

    def _token(self, work: ChunkedWork, at_s: float, events: list[EngineEvent]) -> None:
        """Report the token at the end of a prefill, the sequence's first unless it was preempted."""
        name = work.sequence.request_id
        if work.generated == 1:
            events.append(FirstTokenEvent(name, at_s, work.cached_tokens))
        elif self._emit_tokens:
            events.append(Token(name, at_s, work.generated - 1))

    def _decode(self, work: ChunkedWork, at_s: float, events: list[EngineEvent]) -> None:
        """Let a sequence with a computed prompt decode with the others, or end it if it has all its tokens."""
        sequence = work.sequence
        if work.generated == sequence.output_tokens:
            self._end(work, at_s, events)
            return
        self._decoding[sequence.request_id] = work
        self._batch.join(
            sequence.request_id, sequence.prompt_tokens + work.generated, self._due_in(work, work.generated)
        )

    def _due_in(self, work: ChunkedWork, made: int) -> int:
        """Return the steps until a decoding sequence ends or fills its block; record if it first needs a new block."""
        if not work.table.unfilled:
            self._growing[work.sequence.request_id] = work
        size = self.profile.block_tokens
        return min(work.sequence.output_tokens - made, size - work.table.computed % size)

    def _store(
        self, work: ChunkedWork, computed: int, at_s: float, events: list[EngineEvent], *, loaded: bool = False
    ) -> None:
        first, keys, parent = work.table.compute(computed)
        if keys:
            events.append(BlocksStored(work.sequence.request_id, at_s, first, keys, parent, loaded))

    def _end(self, work: ChunkedWork, at_s: float, events: list[EngineEvent]) -> None:
        self._live.discard(work.sequence.request_id)
        work.table.release()
        events.append(Finished(work.sequence.request_id, at_s, work.generated))


def _rank(work: ChunkedWork) -> tuple[int, int]:
    return work.rank


def by_rank(works: dict[str, ChunkedWork]) -> Iterator[ChunkedWork]:
    """Yield sequences by priority and arrival."""
    return iter(sorted(works.values(), key=_rank))
