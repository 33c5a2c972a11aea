"""Recent decisions and running requests from the memory of gateways, queried over the bus."""

from __future__ import annotations

import functools
import secrets
from collections.abc import Sequence

from controlplane.platform.bus import get_bus
from gateway.bus.bus import Bus
from gateway.bus.questions import Questions
from gateway.contracts import recent_question as contract
from gateway.contracts.recent_question import RecentAnswer, RecentQuestion, RunningRequest
from gateway.contracts.stored_decision import StoredDecision

WAIT_S = 1.0


class GatewayRecords:
    """Queries all running gateways. Thread-safe."""

    def __init__(self, bus: Bus, wait_s: float = WAIT_S) -> None:
        self._questions: Questions[RecentAnswer] = Questions(
            bus, contract.ASKED, contract.ANSWERED, contract.ANSWER, wait_s
        )

    def of_engine(self, engine_id: str) -> list[StoredDecision] | None:
        """Return the last decisions that chose the engine, newest first; None if no gateway responds in time."""
        answers = self._ask(RecentQuestion(secrets.token_hex(8), self._questions.asker, engine_id=engine_id))
        if not answers:
            return None
        decisions = [decision for answer in answers for decision in answer.decisions]
        return sorted(decisions, key=lambda item: item.decided_at, reverse=True)

    def get(self, decision_id: str) -> StoredDecision | None:
        """Return the decision; None if no gateway responds with it in time."""
        answers = self._ask(RecentQuestion(secrets.token_hex(8), self._questions.asker, decision_id=decision_id))
        return next((decision for answer in answers for decision in answer.decisions), None)

    def running(self, pool_ids: Sequence[str] = ()) -> list[RunningRequest]:
        """Return the requests of these pools that have not ended, oldest first, of the gateways that respond in time.

        No ids: all pools. Each gateway returns at most MAX_RUNNING.
        """
        asked = RecentQuestion(secrets.token_hex(8), self._questions.asker, running=True, pool_ids=tuple(pool_ids))
        running = [request for answer in self._ask(asked) for request in answer.running]
        return sorted(running, key=lambda item: item.arrived_at)

    def _ask(self, question: RecentQuestion) -> list[RecentAnswer]:
        """Return the responses of all gateways that received the query, or those that arrived in time."""

        def is_answered(answers: list[RecentAnswer]) -> bool:
            return bool(question.decision_id and answers[-1].decisions)

        return self._questions.ask(question.question_id, contract.QUESTION.encode(question), is_answered).answers


@functools.cache
def recent_decisions() -> GatewayRecords:
    """Return this process's GatewayRecords, which receives responses from the first call."""
    return GatewayRecords(get_bus())
