"""Loads in progress in one worker: each ends once, when its bytes are in the engine's blocks or when it times out."""

from __future__ import annotations

import threading

from kvstore.connector.step_messages import LoadEnd, LoadJob


class LoadBook:
    """For any number of threads. Mutable state, guarded by `_lock`: loads that wait for bytes, with the time they have;
    those whose bytes are being written; and those that have ended, until `take`.
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
        """Count a load, which ends when its time is over unless it is being written by then."""
        with self._lock:
            self._waiting[job.request_id] = (job, now, now + job.timeout_s)

    def is_waiting(self, request_id: str) -> bool:
        """Return whether a request still waits for the bytes."""
        # Without the lock: an outdated answer fetches in vain at worst, because `claim` decides.
        return request_id in self._waiting

    def claim(self, request_id: str) -> bool:
        """Return whether the bytes may be written into the engine's blocks; False: too late, the blocks may be
        another's.
        """
        with self._lock:
            waiting = self._waiting.pop(request_id, None)
            # After its timeout the engine computes the blocks, or has given them to another request.
            if waiting is not None:
                self._writing[request_id] = waiting[0]
            return waiting is not None

    def end(self, end: LoadEnd) -> None:
        """End a load that was claimed; blocks behind `end.blocks` have failed."""
        with self._lock:
            job = self._writing.pop(end.request_id, None)
            if job is not None:
                self._close(job, end)

    def expire(self, now: float) -> None:
        """End the loads whose time is over; bytes that still arrive for them are discarded."""
        with self._lock:
            for request_id, (job, began, ends_at) in list(self._waiting.items()):
                if ends_at <= now:
                    del self._waiting[request_id]
                    self._close(job, LoadEnd(request_id=request_id, seconds=now - began, reason="late"))

    def take(self) -> tuple[list[LoadEnd], set[int]]:
        """Return the loads that have ended since the last call, and the engine's blocks that did not come."""
        with self._lock:
            ended, failed = self._ended, self._failed
            self._ended, self._failed = [], set()
        return ended, failed

    def _close(self, job: LoadJob, end: LoadEnd) -> None:
        self._ended.append(end)
        self._failed.update(job.block_ids[end.blocks :])
