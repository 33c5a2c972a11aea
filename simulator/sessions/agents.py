"""Projects in which agents call one another in turn, after MetaGPT (SYMPHONY §3.5, §4.4).

A product manager, an architect and a project manager speak once, then an engineer writes file after file, and each file
is reviewed and revised up to three times. Every agent keeps one session per project. An advisory for each agent that
may come next goes out when an agent starts: one of them is right, about 6 s ahead.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from itertools import count

from simulator.sessions.client import NextTurn
from simulator.sessions.turn import Session

_ANSWER = (math.log(370), 0.5)
_INSTRUCTION = (math.log(120), 0.6)
_REVISED, _ROUNDS = 0.5, 3
_TOOL_S = 0.2
_LONGEST = 4_000
AGENT_LEAD_S = 5.8
ROLES = ("product_manager", "architect", "project_manager", "engineer", "reviewer")


class AgentProject:
    """One project after another, agent by agent. Mutable: the project's sessions and its calls to come."""

    def __init__(self, rng: random.Random, ids: count[int], max_context: int, *, files: int = 8) -> None:
        self._rng = rng
        self._ids = ids
        self._max_context = max_context
        self._files = files
        self._written = 0
        self._calls = self._project()
        self._sessions: dict[str, Session] = {}
        self._first = True

    def sessions(self) -> list[Session]:
        """Return none: a project starts with empty sessions."""
        return []

    def next_turn(self) -> NextTurn:
        """Return the next agent's request: an instruction and the answer of the agent before it."""
        role, instead = next(self._calls)
        prompt = min(_LONGEST, math.ceil(self._rng.lognormvariate(*_INSTRUCTION))) + self._written
        self._written = min(_LONGEST, math.ceil(self._rng.lognormvariate(*_ANSWER)))
        if self._sessions[role].planned_tokens + prompt + self._written > self._max_context:
            self._sessions[role] = Session(next(self._ids))
        self._sessions[role].planned_tokens += prompt + self._written
        after_s = self._rng.random() * 60.0 if self._first else _TOOL_S
        lead_s = 0.0 if self._first else None
        self._first = False
        return NextTurn(
            session=self._sessions[role],
            prompt_tokens=prompt,
            answer_tokens=self._written,
            after_s=after_s,
            lead_s=lead_s,
            also_advised=[self._sessions[instead]] if instead else [],
        )

    def _project(self) -> Iterator[tuple[str, str]]:
        """Yield the calls, project after project: the agent, and the one that might have been called instead."""
        while True:
            self._sessions = {role: Session(next(self._ids)) for role in ROLES}
            self._written = 0
            yield "product_manager", ""
            yield "architect", ""
            yield "project_manager", ""
            for _ in range(self._files):
                yield "engineer", ""
                yield "reviewer", "project_manager"
                for _ in range(_ROUNDS):
                    if self._rng.random() >= _REVISED:
                        break
                    yield "engineer", ""
                    yield "reviewer", "project_manager"
