"""The connector in one worker of the engine: start loads, copy blocks to store, and report finished loads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from kvstore.backends.backend import KvBackend
from kvstore.connector.block_loader import BlockLoader, BlockMemory
from kvstore.connector.block_saver import BlockSaver
from kvstore.connector.connector_settings import ConnectorSettings
from kvstore.connector.domain_keys import DomainKeys
from kvstore.connector.engine_params import KvOutcome
from kvstore.connector.layered_load import LayeredLoad
from kvstore.connector.load_book import LoadBook
from kvstore.connector.step_messages import LoadEnd, SaveJob, StepJobs, StepReport
from kvstore.keys.payload_key import PayloadFormat

MIN_TIMED_TOKENS = 64
"""A step with fewer tokens measures fixed costs rather than prefill."""
_CLOSE_S = 5.0


class WorkerSide:
    """The connector's worker part.

    The engine's own thread calls it once per step: `begin`, `start_loads`, `save`, `take_ended`, `take_report`. For
    each layer, it can call `wait_for_layer` before the computation and `save_layer` after it.
    """

    def __init__(
        self,
        settings: ConnectorSettings,
        backend: KvBackend,
        memory: BlockMemory,
        payload_format: PayloadFormat,
        clock: Callable[[], float],
    ) -> None:
        self._backend, self._memory, self._clock = backend, memory, clock
        self._keys = DomainKeys(payload_format)
        self._book = LoadBook()
        self._loader = BlockLoader(backend, memory, self._book, clock, settings.load_threads)
        self.saver = (
            BlockSaver(backend, payload_format.block_tokens, memory.payload_bytes, settings.save_buffer_mib << 20)
            if settings.node
            else None
        )
        self._copier = ThreadPoolExecutor(1, "kv-copy")
        self._began = 0.0
        self._token_s = 0.0
        self._ends: list[LoadEnd] = []
        self._failed: set[int] = set()
        self.begin(StepJobs())

    def begin(self, jobs: StepJobs) -> None:
        """Set the jobs of the next step."""
        self._jobs, self._began, self._token_s = jobs, self._clock(), 0.0
        self._layered: list[LayeredLoad] = []
        self._waited = False
        self._saves: list[tuple[SaveJob, memoryview]] | None = None
        self._copies: list[Future[None]] = []
        self._uncopied = [*range(len(self._memory.layer_ends))]

    def start_loads(self) -> None:
        """Start the step's loads in the background."""
        for job in self._jobs.loads:
            keys = self._keys.keys(job.domain, job.chain_hashes)
            if job.layered:
                self._layered.append(self._loader.begin_layers(job, keys))
            else:
                self._loader.begin(job, keys)
        self._jobs = StepJobs((), self._jobs.saves, self._jobs.computed_tokens)

    def wait_for_layer(self, name: str) -> None:
        """Wait until the step's loads have written this layer, or have failed."""
        self._waited = True
        for load in self._layered:
            load.wait(self._memory.layers_of(name).stop)

    def save_layer(self, name: str) -> None:
        """Copy this layer of the blocks to store, while the engine computes the next ones."""
        self._copy(self._memory.layers_of(name))

    def save(self) -> None:
        """Copy the rest of the blocks filled in the step. They are stored in the background."""
        whole = self._end_layered()
        self._copy(self._uncopied)
        for copy in self._copies:
            copy.result()
        jobs, self._jobs = self._jobs, StepJobs()
        for job, payloads in self._saves or ():
            self._store(job, payloads, whole=whole)
        if jobs.saves and jobs.computed_tokens >= MIN_TIMED_TOKENS and not self._layered:
            # The copies have waited for the step, even where the device computes asynchronously.
            self._token_s = (self._clock() - self._began) / jobs.computed_tokens

    def take_ended(self) -> tuple[set[str], set[int]]:
        """Return the requests whose loads beside the steps have ended, and the blocks that must be computed instead."""
        self._book.expire(self._clock())
        ended, failed = self._book.take()
        self._ends += ended
        self._failed |= failed
        failed, self._failed = self._failed, set()
        return {item.request_id for item in ended if not item.prefetch}, failed

    def take_report(self) -> StepReport | None:
        """Return the report to the scheduler side, None without news."""
        unsaved = self.saver.take_unsaved() if self.saver else []
        if not (self._ends or unsaved or self._token_s):
            return None
        report = StepReport(ends=tuple(self._ends), unsaved=tuple(unsaved), token_s=self._token_s)
        self._ends, self._token_s = [], 0.0
        return report

    def close(self) -> None:
        """Store queued blocks, start no more jobs, and close the connections."""
        self._loader.close()
        self._copier.shutdown()
        if self.saver is not None:
            self.saver.close(_CLOSE_S)
        # Last: the saver has just sent what was waiting.
        self._backend.close()

    def _end_layered(self) -> bool:
        """Wait for the ends of the step's loads. Return False if one failed: the step computed with wrong blocks."""
        for load in self._layered:
            # An engine that runs a step as one recorded graph waits for no layer.
            outcome = load.outcome() if self._waited else KvOutcome(reason="failed")
            load.end(outcome)
            self._ends.append(LoadEnd(request_id=load.job.request_id, outcome=outcome))
            self._failed.update(load.job.block_ids[outcome.loaded_blocks :])
        return not self._layered or not self._failed

    def _copy(self, layers: Sequence[int]) -> None:
        """Copy those of the layers that were not copied yet, in another thread."""
        if self.saver is None:
            return
        if self._saves is None:
            # The engine must not wait for the store.
            jobs = [job for job in self._jobs.saves if self.saver.reserve(job)]
            self._saves = [(job, self._memory.buffer(len(job.block_ids))) for job in jobs]
        new = [layer for layer in self._uncopied if layer in layers]
        if new and self._saves:
            mark = self._memory.mark()
            for job, payloads in self._saves:
                copy = self._copier.submit(self._memory.gather, job.block_ids, payloads, new, mark)
                self._copies.append(copy)
            self._uncopied = [layer for layer in self._uncopied if layer not in new]

    def _store(self, job: SaveJob, payloads: memoryview, *, whole: bool) -> None:
        if self.saver is None:
            return
        # Blocks computed from wrong ones must not reach another engine.
        if not whole:
            self.saver.release(job)
            return
        keys = self._keys.keys(job.domain, job.chain_hashes)
        parents = iter(self._keys.keys(job.domain, [parent for parent in job.parents if parent]))
        parent_keys = [next(parents) if parent else b"" for parent in job.parents]
        self.saver.offer(job, keys, parent_keys, payloads)
