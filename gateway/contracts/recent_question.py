"""The console's question to all gateways about recent decisions, and their answers. Neither contains a prompt.

Both are bus messages without stored values: a process that is disconnected at that moment never receives them.
"""

from __future__ import annotations

import msgspec

from gateway.contracts.stored_decision import StoredDecision
from gateway.contracts.wire import MIB, WireForm

ASKED = "recent_decisions/asked"
ANSWERED = "recent_decisions/answered/"
"""Topic prefix of answers, followed by the requester's name."""


class RecentQuestion(msgspec.Struct, frozen=True):
    """Asks for the decision with this id or, if it is empty, for the latest decisions that chose this engine."""

    question_id: str
    asker: str
    decision_id: str = ""
    engine_id: str = ""


class RecentAnswer(msgspec.Struct, frozen=True):
    """One gateway's recent decisions, newest first. The outcome of a running request is RUNNING."""

    question_id: str
    decisions: tuple[StoredDecision, ...] = ()


QUESTION = WireForm(RecentQuestion, "a question for recent decisions", limit=4096)
ANSWER = WireForm(RecentAnswer, "an answer about recent decisions", limit=2 * MIB)
