"""Computes overtaking: prefills of later requests that the same engine received before an earlier request."""

from __future__ import annotations

from collections import OrderedDict, deque

from gateway.pools.pool.recent_decisions import DecisionRecord

MAX_ENGINES = 4096
MAX_DISPATCHES = 512

_Dispatch = tuple[float, float, float]
"""(Dispatch time, arrival time (monotonic seconds), estimated prefill seconds)."""


class QueueOvertakes:
    """Dispatches after a wait, by engine. The engine with the oldest last dispatch is dropped first.

    Mutable: the table, used by one thread at a time.
    """

    def __init__(self) -> None:
        self._dispatches: OrderedDict[str, deque[_Dispatch]] = OrderedDict()

    def dispatched(self, record: DecisionRecord) -> None:
        """Record a dispatch. A dispatch without a wait was not overtaken."""
        decision = record.decision
        if decision.queued_s <= 0.0:
            return
        dispatches = self._dispatches.get(decision.engine_id)
        if dispatches is None:
            dispatches = self._dispatches[decision.engine_id] = deque(maxlen=MAX_DISPATCHES)
            if len(self._dispatches) > MAX_ENGINES:
                self._dispatches.popitem(last=False)
        else:
            self._dispatches.move_to_end(decision.engine_id)
        dispatches.append((record.arrived_s + decision.queued_s, record.arrived_s, decision.compute_s))

    def seconds(self, record: DecisionRecord) -> float:
        """Return the estimated prefills of later requests that were dispatched before this one."""
        if record.decision.queued_s <= 0.0:
            return 0.0
        dispatched_s = record.arrived_s + record.decision.queued_s
        return sum(
            compute_s
            for other_s, arrived_s, compute_s in self._dispatches.get(record.decision.engine_id, ())
            if arrived_s > record.arrived_s and arrived_s <= other_s < dispatched_s
        )
