"""One engine of the second simulator, with its cache and the requests that wait for it (scheduling study §1)."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence

import msgspec

BLOCK_TOKENS, CACHE_BLOCKS = 512, 1953
SLO_S = 5.0


class Job(msgspec.Struct, eq=False):
    """A request. Mutable: the estimate at its binding, and its time to first token (seconds)."""

    number: int
    arrived_s: float
    tokens: int
    blocks: tuple[int, ...]
    """Ids of whole prefixes, as in a trace."""
    estimate_s: float = 0.0
    uncached: int = 0
    ttft_s: float = float("inf")

    @property
    def deadline_s(self) -> float:
        """Time by which its first token is due."""
        return self.arrived_s + SLO_S

    def hit(self, blocks: int) -> int:
        """Return the tokens of the first `blocks` blocks. The last one can be partial."""
        return min(blocks * BLOCK_TOKENS, self.tokens)


def prefill_s(tokens: int, hit: int) -> float:
    """Return the seconds of a prefill by the study's formula."""
    uncached = max(tokens - hit, 1)
    return 0.010 + 0.08e-3 * uncached + 2e-9 * uncached * (tokens - uncached / 2) + 2e-6 * hit


class Station:
    """An engine with one prefill at a time and a leaf-LRU cache. All state is mutable."""

    def __init__(self) -> None:
        self.cache: OrderedDict[int, None] = OrderedDict()
        self.coming: Counter[int] = Counter()
        """Blocks of requests that wait or run on this engine."""
        self.waiting: list[Job] = []
        self.infeasible: list[Job] = []
        self.running: Job | None = None
        self.started_s = self.free_s = 0.0
        self.in_flight = 0
        self.sent_new = self.sent_all = 0

    def resident(self, blocks: Sequence[int]) -> int:
        """Return the number of leading blocks in the cache."""
        return next((at for at, block in enumerate(blocks) if block not in self.cache), len(blocks))

    def match(self, blocks: Sequence[int]) -> int:
        """Return the number of leading blocks in the cache, or on their way with waiting and running requests."""
        cache, coming = self.cache, self.coming
        return next((at for at, block in enumerate(blocks) if block not in cache and block not in coming), len(blocks))

    def wait_s(self, now: float, *, with_infeasible: bool) -> float:
        """Return the remaining running prefill plus the estimates of the waiting requests, in seconds."""
        rest = max(self.free_s - now, 0.0) if self.running is not None else 0.0
        late = sum(job.estimate_s for job in self.infeasible) if with_infeasible else 0.0
        return rest + late + sum(job.estimate_s for job in self.waiting)

    def load(self, now: float) -> float:
        """Return the pending uncached tokens of waiting requests, and of the unfinished share of the running one."""
        pending = float(sum(job.uncached for job in self.waiting) + sum(job.uncached for job in self.infeasible))
        if self.running is not None:
            share = max(self.free_s - now, 0.0) / (self.free_s - self.started_s)
            pending += self.running.uncached * share
        return pending

    def bind(self, job: Job) -> None:
        """Queue a request with its current estimate."""
        held = self.match(job.blocks)
        job.estimate_s, job.uncached = prefill_s(job.tokens, job.hit(held)), job.tokens - job.hit(held)
        self.sent_new += len(job.blocks) - held
        self.sent_all += len(job.blocks)
        self.in_flight += 1
        self.expect(job)
        self.waiting.append(job)

    def start(self, job: Job, now: float) -> None:
        """Begin a prefill. Hits are the blocks that are now in the cache."""
        held = self.resident(job.blocks)
        self._touch(job.blocks[:held])
        job.uncached = job.tokens - job.hit(held)
        self.running, self.started_s = job, now
        self.free_s = now + prefill_s(job.tokens, job.hit(held))

    def finish(self) -> None:
        """End the running prefill and store its blocks in the cache."""
        job, self.running = self.running, None
        if job is None:
            raise AssertionError("a prefill ends that never began")
        job.ttft_s = self.free_s - job.arrived_s
        self.in_flight -= 1
        self._touch(job.blocks)
        while len(self.cache) > CACHE_BLOCKS:
            self.cache.popitem(last=False)
        self.expect_no_more(job)

    def expect(self, job: Job) -> None:
        """Count a request's blocks as on their way."""
        self.coming.update(job.blocks)

    def expect_no_more(self, job: Job) -> None:
        """Undo one `expect`."""
        self.coming.subtract(job.blocks)
        for block in job.blocks:
            # A Counter keeps zeros, which `match` would take for blocks on their way.
            if not self.coming[block]:
                del self.coming[block]

    def _touch(self, blocks: Sequence[int]) -> None:
        """Touch blocks from leaf to root, so that a parent is always younger than its children."""
        for block in reversed(blocks):
            self.cache[block] = None
            self.cache.move_to_end(block)
