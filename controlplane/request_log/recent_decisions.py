"""Decisions of the last minutes from gateways' memory, queried over the bus: some are not stored, or not yet."""

from __future__ import annotations

import functools
import secrets
import threading
import time
from queue import Empty, SimpleQueue

from controlplane.platform.bus import get_bus
from gateway.bus.bus import Bus, BusAwayError
from gateway.contracts.recent_question import ANSWER, ANSWERED, ASKED, QUESTION, RecentAnswer, RecentQuestion
from gateway.contracts.stored_decision import StoredDecision
from gateway.contracts.wire import UnreadableMessageError

WAIT_S = 1.0
MAX_WAITING = 32
"""Questions that wait for their answers at once; who asks one more hears that nobody answers."""


class RecentDecisions:
    """Asks all gateways that run now. Thread-safe.

    Mutable state, under `_lock`: the questions that wait for answers.
    """

    def __init__(self, bus: Bus, wait_s: float = WAIT_S) -> None:
        self._bus = bus
        self._wait_s = wait_s
        self._name = secrets.token_hex(8)
        # Reentrant: a bus within one process answers while the question is told.
        self._lock = threading.RLock()
        self._waiting: dict[str, SimpleQueue[RecentAnswer]] = {}
        bus.subscribe(ANSWERED + self._name, self._hear)

    def of_engine(self, engine_id: str) -> list[StoredDecision] | None:
        """Return the last decisions that chose the engine, newest first; None where no gateway answers in time."""
        answers = self._ask(RecentQuestion(secrets.token_hex(8), self._name, engine_id=engine_id))
        if not answers:
            return None
        told = [decision for answer in answers for decision in answer.decisions]
        return sorted(told, key=lambda each: each.decided_at, reverse=True)

    def get(self, decision_id: str) -> StoredDecision | None:
        """Return the decision; None where no gateway that answers in time remembers it."""
        answers = self._ask(RecentQuestion(secrets.token_hex(8), self._name, decision_id=decision_id))
        return next((decision for answer in answers for decision in answer.decisions), None)

    def _ask(self, question: RecentQuestion) -> list[RecentAnswer]:
        """Return the answers of all gateways that hear the question, or those that came in time."""
        until_s = time.monotonic() + self._wait_s
        came: SimpleQueue[RecentAnswer] = SimpleQueue()
        with self._lock:
            if len(self._waiting) >= MAX_WAITING:
                return []
            self._waiting[question.question_id] = came
            # Under the lock: what one process tells out of order counts as heard already.
            told = self._bus.tell(ASKED, QUESTION.encode(question))
        answers: list[RecentAnswer] = []
        try:
            hearing = told.result(self._wait_s)
            while len(answers) < hearing and not _is_found(question, answers):
                answers.append(came.get(timeout=max(0.0, until_s - time.monotonic())))
        except (BusAwayError, TimeoutError, Empty):
            return answers
        finally:
            with self._lock:
                del self._waiting[question.question_id]
        return answers

    def _hear(self, _topic: str, value: bytes) -> None:
        try:
            answer = ANSWER.decode(value)
        except UnreadableMessageError:
            # Of a gateway of another version, which counts as one that does not answer.
            return
        with self._lock:
            waiting = self._waiting.get(answer.question_id)
        if waiting is not None:
            waiting.put(answer)


@functools.cache
def recent_decisions() -> RecentDecisions:
    """Return this process's, which hears answers from the first call on."""
    return RecentDecisions(get_bus())


def _is_found(question: RecentQuestion, answers: list[RecentAnswer]) -> bool:
    return bool(question.decision_id and answers and answers[-1].decisions)
