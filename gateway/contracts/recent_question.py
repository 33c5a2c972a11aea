"""The console's question to all gateways about recent and running requests, and their answers, without prompts.

Both are bus messages without stored values: a process that is disconnected at that moment never receives them.
"""

from __future__ import annotations

import msgspec

from gateway.contracts.stored_decision import StoredDecision
from gateway.contracts.wire import MIB, WireForm

ASKED = "recent_decisions/asked"
ANSWERED = "recent_decisions/answered/"
"""Topic prefix of answers, followed by the requester's name."""


MAX_RUNNING = 200
"""Limit of running requests in one answer: those that arrived first."""


class RunningRequest(msgspec.Struct, frozen=True):
    """A request that has not ended. Seconds are since its arrival."""

    decision_id: str
    pool_id: str
    tenant_id: str
    key_id: str
    engine_id: str
    """Empty: it waits at the gateway."""
    prompt_tokens: int
    arrived_at: float
    """Unix seconds."""
    age_s: float
    ttft_slo_s: float
    first_token_after_s: float | None = None

    @property
    def late(self) -> bool:
        """Return whether its first token is or was late."""
        first_s = self.first_token_after_s
        return (self.age_s if first_s is None else first_s) > self.ttft_slo_s


class RecentQuestion(msgspec.Struct, frozen=True):
    """Asks for the decision with this id; else for the running requests, if `running` is set; else for the latest
    decisions that chose this engine.
    """

    question_id: str
    asker: str
    decision_id: str = ""
    engine_id: str = ""
    running: bool = False
    pool_ids: tuple[str, ...] = ()
    """Pools of the running requests; empty: all."""


class RecentAnswer(msgspec.Struct, frozen=True):
    """One gateway's recent decisions, newest first. The outcome of a running request is RUNNING.

    `running` are the running requests, oldest first.
    """

    question_id: str
    decisions: tuple[StoredDecision, ...] = ()
    running: tuple[RunningRequest, ...] = ()


QUESTION = WireForm(RecentQuestion, "a question for recent decisions", limit=4096)
ANSWER = WireForm(RecentAnswer, "an answer about recent decisions", limit=2 * MIB)
