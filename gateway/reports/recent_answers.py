"""Answers the console's questions about this gateway's decisions, including decisions that are not stored."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.bus.bus import Bus
from gateway.contracts.recent_question import ANSWER, ANSWERED, ASKED, QUESTION, RecentAnswer, RecentQuestion
from gateway.contracts.wire import UnreadableMessageError
from gateway.pools.pool.recent_decisions import DecisionRecord, RecentDecisions
from gateway.reports.decision_recorder import current_decision


class RecentAnswers:
    """Answers one question after the other in the bus's thread, so that the loop can decide meanwhile."""

    def __init__(self, bus: Bus, recent: RecentDecisions) -> None:
        self._bus = bus
        self._recent = recent
        bus.subscribe(ASKED, self._receive)

    def _receive(self, _topic: str, value: bytes) -> None:
        try:
            question = QUESTION.decode(value)
        except UnreadableMessageError:
            # From a console of another version, which shows that no answer comes.
            return
        answer = RecentAnswer(question.question_id, tuple(map(current_decision, self._asked_for(question))))
        self._bus.notify(ANSWERED + question.asker, ANSWER.encode(answer))

    def _asked_for(self, question: RecentQuestion) -> Sequence[DecisionRecord]:
        if not question.decision_id:
            return self._recent.of_engine(question.engine_id)
        record = self._recent.get(question.decision_id)
        return [record] if record is not None else []
