"""Running workflows of agents: which sessions to advise when an agent starts, and which advisories were false.

The sessions of all next agents are advised, because the branch is not yet known. Those of branches that are not taken
are invalidated once another agent starts (SYMPHONY §3.5).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import msgspec

from routing.advisories.call_graph import CallGraph

Session = TypeVar("Session", bound=Hashable)
LEAST_PROBABILITY = 0.1
"""A next agent below it is not advised: most such advisories would be wasted."""


class NextSession(msgspec.Struct, Generic[Session], frozen=True):
    """A session that may be called next."""

    session: Session
    expected_s: float
    """Seconds from now."""


class AgentAdvice(msgspec.Struct, Generic[Session], frozen=True):
    """Consequences of the start of an agent."""

    advise: tuple[NextSession[Session], ...] = ()
    """The most probable first."""
    invalidate: tuple[Session, ...] = ()


@dataclass(slots=True, eq=False)
class _Workflow(Generic[Session]):
    """One workflow: each agent's session, and whose advisories are in force."""

    sessions: dict[str, Session] = field(default_factory=dict)
    advised: dict[str, Session] = field(default_factory=dict)


class AgentWorkflows(Generic[Session]):
    """The known workflows, at most `limit`: the one that was silent longest gives way.

    Mutable state: `_workflows`. Forgetting one costs an advisory, nothing else.
    """

    def __init__(self, graph: CallGraph, limit: int = 10_000) -> None:
        self.graph = graph
        self._limit = limit
        self._workflows: OrderedDict[Hashable, _Workflow[Session]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._workflows)

    def started(self, workflow: Hashable, agent: str, session: Session) -> AgentAdvice[Session]:
        """Note that an agent's request has come, and return which sessions may follow and which will not."""
        if agent not in self.graph.agents:
            return AgentAdvice()
        # Added again at the end: the one that was silent longest is first.
        known = self._workflows.pop(workflow, None) or _Workflow()
        self._workflows[workflow] = known
        if len(self._workflows) > self._limit:
            self._workflows.popitem(last=False)
        known.sessions[agent] = session
        in_force, known.advised = known.advised, {}
        advise = []
        for item in self.graph.agents[agent]:
            following = known.sessions.get(item.agent)
            if following is not None and following != session and item.probability >= LEAST_PROBABILITY:
                known.advised[item.agent] = following
                advise.append(NextSession(following, item.after_s))
        kept = {session, *known.advised.values()}
        return AgentAdvice(tuple(advise), tuple([item for item in in_force.values() if item not in kept]))
