"""Running agent workflows: select the sessions to advise when an agent starts, and the advisories to invalidate.

The sessions of all possible next agents are advised, because the branch is not yet known. When another agent starts,
the sessions of the other branches are invalidated (SYMPHONY §3.5).
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
"""Next agents less likely than this are not advised: most of their advisories would be wasted."""


class NextSession(msgspec.Struct, Generic[Session], frozen=True):
    """A session that a workflow is likely to call next."""

    session: Session
    expected_s: float
    """Seconds until the expected call."""


class AgentAdvice(msgspec.Struct, Generic[Session], frozen=True):
    """Sessions to advise, and sessions to invalidate, after an agent's start."""

    advise: tuple[NextSession[Session], ...] = ()
    """Ordered by probability, highest first."""
    invalidate: tuple[Session, ...] = ()


@dataclass(slots=True, eq=False)
class _Workflow(Generic[Session]):
    """One workflow: the session of each agent, and the sessions with an active advisory."""

    sessions: dict[str, Session] = field(default_factory=dict)
    advised: dict[str, Session] = field(default_factory=dict)


class AgentWorkflows(Generic[Session]):
    """The known workflows, at most `limit`. The one idle for longest is dropped first.

    Mutable state: `_workflows`. A dropped workflow only loses its advisories.
    """

    def __init__(self, graph: CallGraph, limit: int = 10_000) -> None:
        self.graph = graph
        self._limit = limit
        self._workflows: OrderedDict[Hashable, _Workflow[Session]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._workflows)

    def started(self, workflow: Hashable, agent: str, session: Session) -> AgentAdvice[Session]:
        """Record an agent's request, and return the sessions that are likely to follow and those to invalidate."""
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
