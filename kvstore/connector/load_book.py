"""Loads in progress in one worker. Each ends once: when its bytes are in the engine's blocks, or when it times out."""

from __future__ import annotations

import threading

from kvstore.connector.engine_params import KvOutcome
from kvstore.connector.step_messages import LoadEnd, LoadJob


class LoadBook:
    """Loads in progress, for any number of threads.

    Mutable state, guarded by `_lock`: loads that wait for bytes, with their deadlines; loads whose bytes are being
    written; and ended loads, until `take`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, tuple[LoadJob, float, float]] = {}
        self._writing: dict[str, LoadJob] = {}
        self._ended: list[LoadEnd] = []
        self._failed: set[int] = set()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._writing)

    def begin(self, job: LoadJob, now: float) -> None:
        """Record a load. It times out unless its bytes are being written by its deadline."""
        with self._lock:
            self._waiting[job.request_id] = (job, now, now + job.timeout_s)

    def is_waiting(self, request_id: str) -> bool:
        """Return whether a request is still waiting for bytes."""
        # Without the lock: an outdated answer fetches in vain at worst, because `claim` decides.
        return request_id in self._waiting

    def claim(self, request_id: str) -> bool:
        """Return whether the bytes can be written into the engine's blocks.

        False means the load timed out: the blocks can already belong to another request.
        """
        with self._lock:
            waiting = self._waiting.pop(request_id, None)
            # After its timeout the engine computes the blocks, or has given them to another request.
            if waiting is not None:
                self._writing[request_id] = waiting[0]
            return waiting is not None

    def end(self, end: LoadEnd) -> None:
        """End a claimed load. Blocks after the loaded ones have failed."""
        with self._lock:
            job = self._writing.pop(end.request_id, None)
            if job is not None:
                self._close(job, end)

    def expire(self, now: float) -> None:
        """End the loads that timed out. Bytes that still arrive for them are discarded."""
        with self._lock:
            for request_id, (job, began, ends_at) in list(self._waiting.items()):
                if ends_at <= now:
                    del self._waiting[request_id]
                    outcome = KvOutcome(seconds=now - began, reason="late")
                    self._close(job, LoadEnd(request_id=request_id, outcome=outcome, prefetch=job.prefetch))

    def take(self) -> tuple[list[LoadEnd], set[int]]:
        """Return the loads that ended since the last call, and the engine's blocks that were not loaded."""
        with self._lock:
            ended, failed = self._ended, self._failed
            self._ended, self._failed = [], set()
        return ended, failed

    def _close(self, job: LoadJob, end: LoadEnd) -> None:
        self._ended.append(end)
        # No request has the blocks of a prefetch, so that none computes them.
        if not job.prefetch:
            self._failed.update(job.block_ids[end.outcome.loaded_blocks :])
