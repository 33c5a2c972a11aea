"""The connector in the engine's scheduler: decide what each request loads and stores, and report the outcome.

It reads only a few fields of vLLM's requests, and no clock: `now` is in seconds.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import msgspec

from kvstore.connector.connector_settings import ConnectorSettings
from kvstore.connector.domain_keys import Domain
from kvstore.connector.engine_params import FIELD, KvOutcome, LoadInstruction, order_in
from kvstore.connector.engine_prefetch import EnginePrefetch
from kvstore.connector.load_estimate import LoadEstimate
from kvstore.connector.step_messages import LoadJob, SaveJob, StepJobs, StepReport
from kvstore.keys.block_keys import continued_keys
from kvstore.transfer.frames import CacheHint

MAX_BLOCKS = 1 << 18


class OfferedBlocks:
    """Blocks that need no new offer.

    Mutable state: `_until`, chain hash → when it is offered again, in the order of that time.

    The engine's chain hash covers adapter and salt, so it identifies a block within the engine.
    """

    def __init__(self, again_s: float, max_blocks: int = MAX_BLOCKS) -> None:
        self._again_s, self._max_blocks = again_s, max_blocks
        self._until: OrderedDict[bytes, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._until)

    def has(self, chain_hash: bytes, now: float) -> bool:
        """Return whether a block needs no new offer."""
        return self._until.get(chain_hash, now) > now

    def add(self, chain_hashes: Iterable[bytes], now: float) -> None:
        """Record blocks that were offered or loaded from a node."""
        for chain_hash_ in chain_hashes:
            # Removed first: an assignment alone would keep the old position in the order of times.
            self._until.pop(chain_hash_, None)
            self._until[chain_hash_] = now + self._again_s
        while len(self._until) > self._max_blocks:
            self._until.popitem(last=False)

    def drop(self, chain_hashes: Iterable[bytes]) -> None:
        """Forget blocks that the node rejected."""
        for chain_hash_ in chain_hashes:
            self._until.pop(chain_hash_, None)


class EngineRequest(Protocol):
    """The fields of a request that the scheduler side reads."""

    request_id: str
    block_hashes: Sequence[bytes]
    """Chain hashes of its full blocks."""
    num_prompt_tokens: int
    num_tokens: int
    num_computed_tokens: int
    all_token_ids: Sequence[int]
    """Token ids of the prompt, and of the answer without drafts that the model may reject."""
    kv_transfer_params: dict[str, Any] | None
    cache_salt: str | None


class StepProgress(NamedTuple):
    """Progress of one request in one step."""

    request_id: str
    computed_tokens: int
    """Number of computed tokens after the step."""
    block_ids: Sequence[int]
    """Engine blocks that the request received in this step. With `complete`, all its blocks."""
    complete: bool


class BlockLookup(Protocol):
    """Finds a prompt's leading blocks on a node, in the background."""

    def blocks(self, request_id: str, domain: Domain, chain_hashes: Sequence[bytes], now: float) -> int | None:
        """Return the number of leading blocks, None while the answer is pending."""

    def forget(self, request_id: str) -> None:
        """Drop the answer of this request."""


class BlockNames(Protocol):
    """Finds the engine's hashes of blocks on its node, in the background."""

    def chain(self, request_id: str, domain: Domain, routing_keys: Sequence[int], now: float) -> list[bytes] | None:
        """Return the hashes of the leading blocks with these keys, None while the answer is pending."""

    def forget(self, request_id: str) -> None:
        """Drop the answer of this request."""


@dataclass(slots=True)
class _Tracked:
    """A request in the scheduler. Mutable: its blocks, and the outcome of its order."""

    request: EngineRequest
    order: LoadInstruction
    domain: Domain
    routing_keys: Sequence[int]
    ordered: bool
    block_ids: list[int] = field(default_factory=list)
    checked: int = 0
    """Number of leading blocks that need no further check for storing."""
    load_from: int = 0
    """First block that is not in the engine's own cache."""
    asked: bool = False
    """Whether the request has loaded once. Blocks missing then are computed."""
    layered: bool = False
    """Whether its load runs within the step that computes the rest of the prompt."""
    late: bool = False
    """Whether computing was faster than the ordered load."""
    outcome: KvOutcome | None = None
    """The outcome of its load, of the worker with the fewest blocks. None before the first report."""


class SchedulerSide:
    """Decides loads and saves.

    Mutable state: the engine's requests by id, the offered blocks, the jobs of the next step, and the chain hashes that
    a step loads by layers and the requests that end with it, until its report.
    """

    def __init__(
        self, settings: ConnectorSettings, block_tokens: int, *, workers: int = 1, step_tokens: int = 1 << 30
    ) -> None:
        """Decide for an engine with this many workers, whose steps compute at most `step_tokens`."""
        self._settings, self._block_tokens = settings, block_tokens
        self._workers, self._step_tokens = workers, step_tokens
        self.evict: Callable[[set[int]], None] = lambda _blocks: None
        """Removes blocks from the engine's prefix cache."""
        self.lookup: BlockLookup | None = None
        """Lookup for requests without an order. None: they load no blocks."""
        self.names: BlockNames | None = None
        """Names of prefetched blocks. None: none are prefetched."""
        self.payload_bytes = 0
        """Payload size of a block as reported by the workers, 0 before the first report."""
        self.estimate = LoadEstimate()
        self.prefetch = EnginePrefetch(settings, workers)
        self.offered = OfferedBlocks(settings.store_again_s)
        self._pinned = OfferedBlocks(settings.store_again_s)
        """Blocks offered as part of a context cache, which the node has pinned."""
        self.wrong_orders = 0
        self._tracked: dict[str, _Tracked] = {}
        self._loads: list[LoadJob] = []
        self._unverified: set[bytes] = set()
        self._ended: dict[str, _Tracked] = {}

    def __len__(self) -> int:
        return len(self._tracked)

    def add(self, request: EngineRequest, lora: str) -> None:
        """Add a new request. An invalid order is ignored."""
        order, ordered = LoadInstruction(), False
        keys: Sequence[int] = ()
        try:
            instruction = order_in(request.kv_transfer_params)
            if instruction is not None:
                order, keys, ordered = instruction, instruction.routing_keys(), True
        except ValueError:
            # The request runs without its order: a wrong one must not fail it.
            self.wrong_orders += 1
        domain = Domain(lora, request.cache_salt or "")
        self._tracked[request.request_id] = _Tracked(request, order, domain, keys, ordered)

    def matched(self, request: EngineRequest, computed_tokens: int, now: float) -> int | None:
        """Return how many tokens after the computed ones can be loaded.

        None while the node's answer is pending: call again later.
        """
        tracked = self._tracked.get(request.request_id)
        # A request loads once: blocks that failed are computed.
        if tracked is None or tracked.asked:
            return 0
        if tracked.order.prefetch_rank is not None:
            return None if self._prefetches(tracked, tracked.order.prefetch_rank, now) else 0
        # The last token is always computed, because its logits are needed.
        most = min(len(request.block_hashes), (request.num_tokens - 1) // self._block_tokens)
        tracked.load_from = computed_tokens // self._block_tokens
        there = self._there(tracked, request.block_hashes[:most], now)
        if there is None:
            return None
        wanted = max(0, there - tracked.load_from)
        tokens = wanted * self._block_tokens
        size = wanted * self.payload_bytes
        tracked.late = bool(wanted and self._settings.max_load_ratio) and not self.estimate.pays(tokens, size)
        if tracked.late:
            self.estimate.rejected()
            return 0
        rest = min(request.num_tokens - computed_tokens - tokens, self._step_tokens)
        tracked.layered = self._settings.layer_wise and bool(wanted) and self.estimate.hides(size, rest)
        return tokens

    def is_layered(self, request_id: str) -> bool:
        """Return whether the step that allocates the request's blocks also loads them."""
        tracked = self._tracked.get(request_id)
        return tracked is not None and tracked.layered

    def allocated(self, request: EngineRequest, block_ids: Sequence[int], external_tokens: int) -> None:
        """Load into the request's blocks, after the engine has allocated them for the result of `matched`."""
        tracked = self._tracked.get(request.request_id)
        if tracked is None or external_tokens <= 0 or tracked.asked:
            return
        first = tracked.load_from
        behind = first + external_tokens // self._block_tokens
        tracked.asked, tracked.block_ids = True, list(block_ids)
        job = LoadJob(
            request_id=request.request_id,
            block_ids=tuple(block_ids[first:behind]),
            chain_hashes=tuple(bytes(block_hash_) for block_hash_ in request.block_hashes[first:behind]),
            holders=tuple(tracked.order.holders if tracked.ordered else [self._settings.node]),
            domain=tracked.domain,
            timeout_s=self.estimate.patience_s(
                external_tokens, self._settings.load_timeout_s, self._settings.max_load_ratio
            ),
            layered=tracked.layered,
        )
        self._loads.append(job)
        size = (behind - first) * self.payload_bytes
        if tracked.layered:
            # A request that ends with this step ends before the report, and only if the load succeeded.
            tracked.outcome = KvOutcome(loaded_blocks=behind - first, loaded_bytes=size, holder=job.holders[0])
            self._unverified.update(job.chain_hashes)
        self.estimate.begin(request.request_id, size)

    def step(self, progress: Iterable[StepProgress], computed_tokens: int, now: float) -> StepJobs:
        """Return the loads and saves for the workers to run during the step of `computed_tokens` tokens."""
        saves: list[SaveJob] = []
        loads, self._loads = self._loads, []
        for load in loads:
            # The blocks come from a node, so that they need no offer.
            self.offered.add(load.chain_hashes if load.layered else (), now)
        loads += self.prefetch.take_jobs()
        for item in progress:
            tracked = self._tracked.get(item.request_id)
            if tracked is None:
                continue
            if item.complete:
                self.prefetch.used(map(bytes, tracked.request.block_hashes))
            tracked.block_ids = [*([] if item.complete else tracked.block_ids), *item.block_ids]
            saves += self._to_save(tracked, item.computed_tokens, now)
        return StepJobs(tuple(loads), tuple(saves), computed_tokens)

    def report(self, report: StepReport, now: float) -> None:
        """Process the workers' report after a step."""
        self.offered.drop(report.unsaved)
        self._pinned.drop(report.unsaved)
        self.estimate.computed(report.token_s)
        for end in report.ends:
            outcome = end.outcome
            self.estimate.end(end.request_id, outcome.loaded_bytes, outcome.seconds)
            if end.prefetch:
                # The blocks came from the node, so that they need no offer.
                self.offered.add(self.prefetch.ended(end), now)
                continue
            tracked = self._tracked.get(end.request_id) or self._ended.get(end.request_id)
            if tracked is not None:
                self._loaded(tracked, outcome, now)
        self._unverified.clear()
        self._ended.clear()

    def _loaded(self, tracked: _Tracked, outcome: KvOutcome, now: float) -> None:
        """Process a load's end in one worker, or in all workers of a step. A request has the blocks that all have."""
        known = tracked.outcome
        hashes = [bytes(block_hash_) for block_hash_ in tracked.request.block_hashes]
        if tracked.layered and known is not None and outcome.loaded_blocks < known.loaded_blocks:
            # No step waits for a load again before another load has measured the rate.
            self.estimate.byte_s = 0.0
            first = tracked.load_from + outcome.loaded_blocks
            self.offered.drop(hashes[first:])
            self._compute_again(tracked.block_ids[first : tracked.load_from + known.loaded_blocks])
        if known is None or tracked.layered or outcome.loaded_blocks < known.loaded_blocks:
            tracked.outcome = known = outcome
        behind = tracked.load_from + known.loaded_blocks
        # The blocks came from a node, so that they need no offer.
        self.offered.add(hashes[tracked.load_from : behind], now)
        if known.reason == "missing":
            # The node that was believed to hold them, perhaps the engine's own, has lost them.
            self.offered.drop(hashes[behind:])

    def _compute_again(self, failed: Collection[int]) -> None:
        """Let each request compute from the first of these blocks in its prompt, and no other request find them.

        The engine does so itself for only one of several requests with the same block.
        """
        for tracked in (*self._tracked.values(), *self._ended.values()):
            first = next((at for at, block_id in enumerate(tracked.block_ids) if block_id in failed), None)
            if first is not None:
                request = tracked.request
                request.num_computed_tokens = min(request.num_computed_tokens, first * self._block_tokens)
                tracked.checked = min(tracked.checked, first)
                self.evict(set(tracked.block_ids[first:]))

    def loaded(self, request_id: str) -> tuple[Any, int, int] | None:
        """Return an ended load's request, the number of tokens that the engine already had, and the number loaded."""
        tracked = self._tracked.get(request_id)
        if tracked is None or tracked.outcome is None:
            return None
        loaded_tokens = tracked.outcome.loaded_blocks * self._block_tokens
        return tracked.request, tracked.load_from * self._block_tokens, loaded_tokens

    def finished(self, request_id: str) -> dict[str, Any] | None:
        """Forget a request and return the outcome of its order for its response.

        None if it had no order and no load, or a quiet order.
        """
        tracked = self._tracked.pop(request_id, None)
        prefetched = self.prefetch.finished(request_id)
        # Its blocks stay in the engine's cache, even if the client is gone.
        if tracked is not None and self._unverified:
            self._ended[request_id] = tracked
        for asked in (self.lookup, self.names):
            if asked is not None:
                asked.forget(request_id)
        if tracked is None or tracked.order.quiet or not (tracked.order.load_blocks or tracked.outcome):
            return None
        outcome = prefetched or tracked.outcome or KvOutcome(reason="late" if tracked.late else "")
        return {FIELD: msgspec.to_builtins(outcome)}

    def _prefetches(self, tracked: _Tracked, rank: int, now: float) -> bool:
        """Return whether the request has to wait for its prefetch."""
        name, names = tracked.request.request_id, self.names
        keys = tracked.routing_keys[: tracked.order.load_blocks]

        def chain(keys: Sequence[int]) -> Sequence[bytes] | None:
            return () if names is None else names.chain(name, tracked.domain, keys, now)

        return self.prefetch.waits(name, rank, keys, tracked.domain, chain)

    def _there(self, tracked: _Tracked, chain_hashes: Sequence[bytes], now: float) -> int | None:
        if tracked.ordered or self.lookup is None:
            return min(tracked.order.load_blocks, len(chain_hashes)) if tracked.order.holders else 0
        if tracked.load_from >= len(chain_hashes):
            return 0
        return self.lookup.blocks(tracked.request.request_id, tracked.domain, chain_hashes, now)

    def _to_save(self, tracked: _Tracked, computed_tokens: int, now: float) -> list[SaveJob]:
        """Return the blocks that are full after the step and were not offered yet, one job per hint.

        Blocks of the answer are stored if the prompt's keys name them. A step can compute drafts, whose tokens may be
        rejected, so that only blocks of known tokens count.
        """
        request, hashes = tracked.request, tracked.request.block_hashes
        # One worker cannot know whether the others computed with the right blocks.
        if self._workers > 1 and not self._unverified.isdisjoint(map(bytes, hashes)):
            return []
        tokens = min(computed_tokens, request.num_tokens if tracked.routing_keys else request.num_prompt_tokens)
        # Only full blocks have a hash.
        behind = min(tokens // self._block_tokens, len(hashes), len(tracked.block_ids))
        new = range(tracked.checked, behind)
        tracked.checked = max(tracked.checked, behind)
        if not new or not self._settings.node:
            return []
        if 0 < len(tracked.routing_keys) < behind:
            known, ids = tracked.routing_keys, request.all_token_ids
            tracked.routing_keys = continued_keys(known, ids, behind, self._block_tokens)
        prompt_blocks = request.num_prompt_tokens // self._block_tokens
        by_hint: dict[CacheHint, list[int]] = {}
        for index in new:
            by_hint.setdefault(tracked.order.hint_at(index, prompt_blocks), []).append(index)
        jobs = (self._job(tracked, hint, indices, now) for hint, indices in by_hint.items() if hint != "ephemeral")
        return [job for job in jobs if job is not None]

    def _job(self, tracked: _Tracked, hint: CacheHint, indices: Sequence[int], now: float) -> SaveJob | None:
        """Return the job that stores these blocks, None if all were offered already."""
        hashes, keys = tracked.request.block_hashes, tracked.routing_keys
        # A block that was offered without the hint is offered once more, so that the node pins it.
        known = self._pinned if hint == "context_cache" else self.offered
        indices = [index for index in indices if not known.has(bytes(hashes[index]), now)]
        if not indices:
            return None
        chain_hashes = tuple(bytes(hashes[index]) for index in indices)
        # Noted before they are stored, or the next step would offer them again; `unsaved` takes them back.
        self.offered.add(chain_hashes, now)
        known.add(chain_hashes, now)
        return SaveJob(
            block_ids=tuple(tracked.block_ids[index] for index in indices),
            chain_hashes=chain_hashes,
            parents=tuple(bytes(hashes[index - 1]) if index else b"" for index in indices),
            routing_keys=tuple(keys[index] if index < len(keys) else 0 for index in indices),
            domain=tracked.domain,
            tenant=tracked.order.tenant,
            hint=hint,
            pin_s=tracked.order.pin_s if hint == "context_cache" else 0.0,
        )


def progress_of(scheduler_output: Any) -> Iterator[StepProgress]:
    """Yield each request of a step from vLLM's `SchedulerOutput`. The model has one group of blocks.

    A request that resumes after a preemption is reported with all its blocks, a running one with its new ones.
    """
    scheduled = scheduler_output.num_scheduled_tokens
    for new in scheduler_output.scheduled_new_reqs:
        yield StepProgress(new.req_id, new.num_computed_tokens + scheduled[new.req_id], new.block_ids[0], True)
    known = scheduler_output.scheduled_cached_reqs
    for request_id, blocks, computed in zip(known.req_ids, known.new_block_ids, known.num_computed_tokens, strict=True):
        resumed = request_id in known.resumed_req_ids
        yield StepProgress(request_id, computed + scheduled[request_id], blocks[0] if blocks else (), resumed)
