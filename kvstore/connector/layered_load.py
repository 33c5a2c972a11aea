"""A load whose layers the engine uses as they arrive, within one step (SYMPHONY §3.4)."""

from __future__ import annotations

import threading
from collections.abc import Callable

import msgspec

from kvstore.connector.engine_params import KvOutcome
from kvstore.connector.step_messages import LoadJob


class LayeredLoad:
    """One request's load, for the engine's thread and the one that receives the bytes.

    Mutable state, guarded by `_turn`: `written`, the number of layers that the engine can use, and the outcome.
    """

    def __init__(self, job: LoadJob, clock: Callable[[], float]) -> None:
        self.job, self._clock, self._began = job, clock, clock()
        self.written = 0
        self._outcome: KvOutcome | None = None
        self._turn = threading.Condition()

    def write(self, layers: int, copy: Callable[[], None]) -> bool:
        """Run the copy that completes this many layers. Return False if the engine no longer waits for them."""
        # Under the lock: after a timeout the blocks can belong to another request.
        with self._turn:
            if self._outcome is None:
                copy()
                self.written = layers
                self._turn.notify_all()
            return self._outcome is None

    def end(self, outcome: KvOutcome) -> None:
        """Set the outcome, unless the load timed out."""
        with self._turn:
            if self._outcome is None:
                self._outcome = msgspec.structs.replace(outcome, seconds=self._clock() - self._began)
                self._turn.notify_all()

    def wait(self, layers: int) -> None:
        """Wait until this many layers are written or the load has ended."""
        self._wait(lambda: self.written >= layers)

    def outcome(self) -> KvOutcome:
        """Wait until the load has ended: the bytes are verified after the last layer."""
        return self._wait(lambda: False) or KvOutcome(reason="failed")

    def _wait(self, done: Callable[[], bool]) -> KvOutcome | None:
        with self._turn:
            left = max(0.0, self._began + self.job.timeout_s - self._clock())
            if not self._turn.wait_for(lambda: done() or self._outcome is not None, left):
                self.end(KvOutcome(reason="late"))
            return self._outcome
