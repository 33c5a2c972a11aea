"""Answers the console's questions about this gateway's decisions and running requests, stored or not."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from time import monotonic, time
from typing import TYPE_CHECKING

from gateway.bus.bus import Bus
from gateway.contracts import recent_question as contract
from gateway.contracts.recent_question import RecentAnswer, RunningRequest
from gateway.contracts.wire import UnreadableMessageError
from gateway.pools.pool.recent_decisions import DecisionRecord, RecentDecisions
from gateway.reports.decision_recorder import current_decision

if TYPE_CHECKING:
    from gateway.pools.pool.live_pool import LivePool


class RecentAnswers:
    """Answers one question after the other in the bus's thread, so that the loop can decide meanwhile."""

    def __init__(
        self,
        bus: Bus,
        recent: RecentDecisions,
        pools: Callable[[], Iterable[LivePool]] = tuple,
    ) -> None:
        self._bus = bus
        self._recent = recent
        self._pools = pools
        bus.subscribe(contract.ASKED, self._receive)

    def _receive(self, _topic: str, value: bytes) -> None:
        try:
            question = contract.QUESTION.decode(value)
        except UnreadableMessageError:
            # From a console of another version, which shows that no answer comes.
            return
        if question.running and not question.decision_id:
            answer = RecentAnswer(question.question_id, running=self._running(question.pool_ids))
        else:
            answer = RecentAnswer(question.question_id, tuple(map(current_decision, self._asked_for(question))))
        self._bus.notify(contract.ANSWERED + question.asker, contract.ANSWER.encode(answer))

    def _asked_for(self, question: contract.RecentQuestion) -> Sequence[DecisionRecord]:
        if not question.decision_id:
            return self._recent.of_engine(question.engine_id)
        record = self._recent.get(question.decision_id)
        return [record] if record is not None else []

    def _running(self, pool_ids: Collection[str]) -> tuple[RunningRequest, ...]:
        now, unix = monotonic(), time()
        running: dict[str, RunningRequest] = {}
        # list() copies within one step of the interpreter, so the loop may go on deciding meanwhile.
        held = [(pool.entry.pool_id, list(pool.driver.held.values())) for pool in list(self._pools())]
        for pool_id, request in ((pool_id, request) for pool_id, requests in held for request in requests):
            # The core's own request has none.
            key_id = getattr(request, "key_id", "")
            age_s = max(0.0, now - request.arrived_s)
            running[request.request_id] = RunningRequest(
                request.request_id, pool_id, request.tenant_id, key_id, "", request.prompt_tokens, unix - age_s, age_s,
                request.ttft_slo_s,
            )  # fmt: skip
        for record in self._recent.running():
            decision, age_s = record.decision, max(0.0, now - record.arrived_s)
            running[decision.decision_id] = RunningRequest(
                decision.decision_id, decision.pool_id, record.tenant_id, record.key_id, decision.engine_id,
                decision.prompt_tokens, unix - age_s, age_s, record.ttft_slo_s, record.ttft_s,
            )  # fmt: skip
        asked = [item for item in running.values() if not pool_ids or item.pool_id in pool_ids]
        return tuple(sorted(asked, key=lambda item: item.arrived_at)[: contract.MAX_RUNNING])
