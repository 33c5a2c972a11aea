"""Projects in which agents call each other in turn, modeled on MetaGPT (SYMPHONY §3.5, §4.4).

A product manager, an architect and a project manager act once, then an engineer writes file after file. Each file is
reviewed and revised up to three times; after some files, the project manager is called before the next one. Every agent
has one session per project. The next agent and its delay are learned from ten projects, as in the paper.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from functools import lru_cache
from itertools import count

from routing.advisories.call_graph import AgentCall, CallGraph, learn_call_graph
from simulator.sessions.hardware import MAX_CONTEXT, SERVED_MODELS
from simulator.sessions.turn import NextTurn, Session

_ANSWER = (math.log(370), 0.5)
_INSTRUCTION = (math.log(120), 0.6)
_REVISED, _ROUNDS, _ASKED = 0.5, 3, 0.3
_TOOL_S = 0.2
_LONGEST = 4_000
_PROFILED_PROJECTS = 10
ROLES = ("product_manager", "architect", "project_manager", "engineer", "reviewer")


class AgentProject:
    """Runs one project after another, agent by agent. Mutable: the project's sessions and its future calls."""

    def __init__(self, rng: random.Random, ids: count[int], max_context: int, *, files: int = 8) -> None:
        self._rng = rng
        self._ids = ids
        self._max_context = max_context
        self._files = files
        self._written = 0
        self._calls = self._project()
        self._sessions: dict[str, Session] = {}
        self._workflow = 0
        self._first = True

    def sessions(self) -> list[Session]:
        """Return an empty list: a project starts with empty sessions."""
        return []

    def next_turn(self) -> NextTurn:
        """Return the next agent's request: an instruction and the previous agent's output."""
        role = next(self._calls)
        prompt = min(_LONGEST, math.ceil(self._rng.lognormvariate(*_INSTRUCTION))) + self._written
        self._written = min(_LONGEST, math.ceil(self._rng.lognormvariate(*_ANSWER)))
        if self._sessions[role].planned_tokens + prompt + self._written > self._max_context:
            self._sessions[role] = Session(next(self._ids))
        self._sessions[role].planned_tokens += prompt + self._written
        after_s = self._rng.random() * 60.0 if self._first else _TOOL_S
        self._first = False
        return NextTurn(
            session=self._sessions[role],
            prompt_tokens=prompt,
            answer_tokens=self._written,
            after_s=after_s,
            lead_s=None,
            agent=role,
            workflow=self._workflow,
        )

    def _project(self) -> Iterator[str]:
        """Yield the agents in call order, project after project."""
        while True:
            self._sessions = {role: Session(next(self._ids)) for role in ROLES}
            self._workflow = self._sessions[ROLES[0]].session_id
            self._written = 0
            yield from ROLES[:3]
            for number in range(self._files):
                if number and self._rng.random() < _ASKED:
                    yield "project_manager"
                yield "engineer"
                yield "reviewer"
                for _ in range(_ROUNDS):
                    if self._rng.random() >= _REVISED:
                        break
                    yield "engineer"
                    yield "reviewer"


@lru_cache
def profiled_call_graph(model: str) -> CallGraph:
    """Return the call graph learned from ten projects that run one by one on idle engines."""
    calls, profile = [], SERVED_MODELS[model]
    for number in range(_PROFILED_PROJECTS):
        project, at_s, begun = AgentProject(random.Random(f"profile {number}"), count(), MAX_CONTEXT[model]), 0.0, 0
        while True:
            turn = project.next_turn()
            begun += turn.agent == ROLES[0]
            if begun > 1:
                break
            calls.append(AgentCall(str(number), turn.agent, at_s))
            at_s += turn.prompt_tokens * profile.prefill_per_token_s + turn.answer_tokens * profile.step_base_s
            at_s += _TOOL_S
    return learn_call_graph(calls)
