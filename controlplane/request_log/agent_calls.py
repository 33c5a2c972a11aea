"""Agents' calls in recorded traffic, and the call graph learned from them (SYMPHONY §3.5)."""

from __future__ import annotations

from controlplane.request_log.store.segments import recorded_traffic
from routing.advisories.call_graph import AgentCall, CallGraph, learn_call_graph


def recorded_call_graph(begin: float, end: float, pool: str = "") -> CallGraph:
    """Return the graph of the calls recorded within [begin, end) in unix seconds, in all pools or in one.

    Raises ValueError where names of agents are too many to be names.
    """
    rows = recorded_traffic(begin, end)
    return learn_call_graph(
        AgentCall(f"{row.tenant} {row.workflow}", row.agent, row.at)
        for row in rows
        if row.agent and row.workflow and pool in ("", row.pool)
    )
