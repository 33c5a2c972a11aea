"""The connector in one worker of the engine: start loads, copy blocks to store, and report finished loads."""

from __future__ import annotations

from collections.abc import Callable

from kvstore.backends.backend import KvBackend
from kvstore.connector.block_loader import BlockLoader, BlockMemory
from kvstore.connector.block_saver import BlockSaver
from kvstore.connector.connector_settings import ConnectorSettings
from kvstore.connector.domain_keys import DomainKeys
from kvstore.connector.load_book import LoadBook
from kvstore.connector.step_messages import LoadEnd, SaveJob, StepJobs, StepReport
from kvstore.keys.payload_key import PayloadFormat

MIN_TIMED_TOKENS = 64
"""A step with fewer tokens measures fixed costs rather than prefill."""
_CLOSE_S = 5.0


class WorkerSide:
    """The connector's worker part.

    The engine's own thread calls it once per step: `begin`, `start_loads`, `save`, `take_ended`, `take_report`.
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
        self._jobs = StepJobs()
        self._began = 0.0
        self._token_s = 0.0
        self._ends: list[LoadEnd] = []

    def begin(self, jobs: StepJobs) -> None:
        """Set the jobs of the next step."""
        self._jobs, self._began, self._token_s = jobs, self._clock(), 0.0

    def start_loads(self) -> None:
        """Start the step's loads in the background."""
        for job in self._jobs.loads:
            self._loader.begin(job, self._keys.keys(job.domain, job.chain_hashes))
        self._jobs = StepJobs((), self._jobs.saves, self._jobs.computed_tokens)

    def save(self) -> None:
        """Copy the blocks filled in the step. They are stored in the background."""
        jobs, self._jobs = self._jobs, StepJobs()
        for job in jobs.saves:
            self._copy(job)
        if jobs.saves and jobs.computed_tokens >= MIN_TIMED_TOKENS:
            # The copies have waited for the step, even where the device computes asynchronously.
            self._token_s = (self._clock() - self._began) / jobs.computed_tokens

    def take_ended(self) -> tuple[set[str], set[int]]:
        """Return the requests whose loads have ended, and the engine's blocks that must be computed instead."""
        self._book.expire(self._clock())
        ended, failed = self._book.take()
        self._ends += ended
        return {item.request_id for item in ended}, failed

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
        if self.saver is not None:
            self.saver.close(_CLOSE_S)
        # Last: the saver has just sent what was waiting.
        self._backend.close()

    def _copy(self, job: SaveJob) -> None:
        if self.saver is None:
            return
        # The engine must not wait for the store.
        if not self.saver.has_room(len(job.block_ids)):
            self.saver.reject(job)
            return
        keys = self._keys.keys(job.domain, job.chain_hashes)
        parents = iter(self._keys.keys(job.domain, [parent for parent in job.parents if parent]))
        parent_keys = [next(parents) if parent else b"" for parent in job.parents]
        self.saver.offer(job, keys, parent_keys, self._memory.gather(job.block_ids))
