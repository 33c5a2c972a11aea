"""The call graph of agents: how often and how soon one calls another, learned from calls (SYMPHONY §3.1, §3.5).

An agent's next agents are those that start next in the same workflow, even if they run in parallel: each branch of a
fan-out is then expected after the branch before it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import pairwise
from statistics import median
from typing import Annotated

import msgspec
from msgspec import Meta

MOST_NEXT = 8
"""Maximum next agents kept per agent, the most probable first."""
MOST_AGENTS = 1_000
Name = Annotated[str, Meta(min_length=1, max_length=128)]


class NextAgent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An agent that can be called after another one."""

    agent: Name
    probability: Annotated[float, Meta(gt=0, le=1)]
    """Share of the preceding agent's calls that this agent follows. The others end the workflow."""
    after_s: Annotated[float, Meta(ge=0)]
    """Median time from the start of the preceding call to the start of this agent's call."""


class CallGraph(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The agents of an application and their next agents, most probable first."""

    agents: Annotated[
        dict[Name, Annotated[tuple[NextAgent, ...], Meta(max_length=MOST_NEXT)]], Meta(max_length=MOST_AGENTS)
    ]
    calls: dict[Name, int] = {}
    """Number of calls of each agent in the learning data."""


NO_AGENTS = CallGraph({})


class AgentCall(msgspec.Struct, frozen=True, gc=False):
    """One call of an agent."""

    workflow: str
    """Identifies one run of the application; all its calls share it."""
    agent: str
    at_s: float


def learn_call_graph(calls: Iterable[AgentCall], least_probability: float = 0.02) -> CallGraph:
    """Return the graph learned from calls in any order, without branches rarer than `least_probability`.

    Raises ValueError for more than MOST_AGENTS agents, because the agent name then contains something else, such as an
    id.
    """
    workflows: defaultdict[str, list[AgentCall]] = defaultdict(list)
    for call in calls:
        workflows[call.workflow].append(call)
    made: Counter[str] = Counter()
    gaps: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for _, steps in sorted(workflows.items()):
        # By name at equal times, so that the same calls in any order give the same graph.
        steps.sort(key=lambda call: (call.at_s, call.agent))
        made.update(call.agent for call in steps)
        for before, after in pairwise(steps):
            gaps[before.agent][after.agent].append(after.at_s - before.at_s)
    if len(made) > MOST_AGENTS:
        raise ValueError(f"{len(made)} agents: a name must stand for a role, not for one call")
    return CallGraph(
        agents={agent: _next_of(gaps[agent], made[agent], least_probability) for agent in sorted(made)},
        calls=dict(sorted(made.items())),
    )


def _next_of(gaps: dict[str, list[float]], calls: int, least: float) -> tuple[NextAgent, ...]:
    followers = [
        NextAgent(agent, round(len(followed_after_s) / calls, 4), round(median(followed_after_s), 3))
        for agent, followed_after_s in gaps.items()
        if len(followed_after_s) / calls >= least
    ]
    return tuple(sorted(followers, key=lambda item: (-item.probability, item.agent))[:MOST_NEXT])
