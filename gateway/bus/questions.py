"""Questions to all processes that subscribe to a bus topic, with a time limit."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Generic, Protocol, TypeVar

from gateway.bus.bus import Bus, BusAwayError
from gateway.contracts.wire import UnreadableMessageError, WireForm

MAX_WAITING = 32
"""Limit of concurrent questions. A further question gets no answers."""


class BusAnswer(Protocol):
    """One process's answer to a question."""

    @property
    def question_id(self) -> str:
        """Return the id of the answered question."""


AnswerT = TypeVar("AnswerT", bound=BusAnswer)


@dataclass(frozen=True, slots=True)
class BusAnswers(Generic[AnswerT]):
    """The answers that arrived in time."""

    answers: list[AnswerT]
    asked: int = 0
    """Number of processes that received the question; 0 also if the bus has lost its server."""


class Questions(Generic[AnswerT]):
    """Sends questions on the topic `asked`, and receives answers on `answered` under our name. Thread-safe.

    Mutable, under `_lock`: the questions that wait for answers.
    """

    def __init__(self, bus: Bus, asked: str, answered: str, form: WireForm[AnswerT], wait_s: float) -> None:
        self.asker = secrets.token_hex(8)
        self.wait_s = wait_s
        self._bus, self._asked, self._form = bus, asked, form
        # Reentrant: a bus within one process answers while the question is sent.
        self._lock = threading.RLock()
        self._waiting: dict[str, SimpleQueue[AnswerT]] = {}
        bus.subscribe(answered + self.asker, self._take)

    def ask(
        self, question_id: str, question: bytes, is_enough: Callable[[list[AnswerT]], bool] = lambda _: False
    ) -> BusAnswers[AnswerT]:
        """Return the answers that arrived in time. Stop after all answers, or once `is_enough` returns True."""
        until_s = time.monotonic() + self.wait_s
        came: SimpleQueue[AnswerT] = SimpleQueue()
        with self._lock:
            if len(self._waiting) >= MAX_WAITING:
                return BusAnswers([])
            self._waiting[question_id] = came
            # Under the lock: an answer of this process comes before the next line.
            sent = self._bus.notify(self._asked, question)
        answers: list[AnswerT] = []
        asked = 0
        try:
            asked = sent.result(self.wait_s)
            while len(answers) < asked and not (answers and is_enough(answers)):
                answers.append(came.get(timeout=max(0.0, until_s - time.monotonic())))
        except (BusAwayError, TimeoutError, Empty):
            return BusAnswers(answers, asked)
        finally:
            with self._lock:
                del self._waiting[question_id]
        return BusAnswers(answers, asked)

    def _take(self, _topic: str, value: bytes) -> None:
        try:
            answer = self._form.decode(value)
        except UnreadableMessageError:
            # From a process of another version, which counts as one that does not answer.
            return
        with self._lock:
            waiting = self._waiting.get(answer.question_id)
        if waiting is not None:
            waiting.put(answer)
