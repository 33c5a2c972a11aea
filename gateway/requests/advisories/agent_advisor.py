"""Sends advisories for agents: when one agent starts, for the sessions of the likely next agents (SYMPHONY §3.5).

A request names its agent and its workflow; the call graph predicts the next agents and their times. Advisories for
branches that are not taken are withdrawn.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from typing_extensions import override

from gateway.contracts.advisory import Advisory
from gateway.pools.pool.request_listener import RequestListener
from routing.advisories.agent_workflows import AgentAdvice, AgentWorkflows
from routing.advisories.call_graph import CallGraph

if TYPE_CHECKING:
    from gateway.pools.pool.recent_decisions import DecisionRecord
    from gateway.requests.advisories.advisory_exchange import AdvisoryExchange
    from routing.values.inference_request import InferenceRequest

VARIABLE = "HEADWAY_CALL_GRAPH"
SOURCE = "agents"
"""Source name under which these advisories are counted."""
_DECODER = msgspec.json.Decoder(CallGraph)


class CallGraphError(ValueError):
    """The call graph file cannot be used; the message states why."""


def read_call_graph(path: str) -> CallGraph | None:
    """Return the call graph in a file, None if no file is configured; raise CallGraphError."""
    if not path.strip():
        return None
    try:
        return _DECODER.decode(Path(path.strip()).read_bytes())
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CallGraphError(f"{VARIABLE}={path}: {error}") from error


class AgentAdvisor(RequestListener):
    """Sends advisories on each dispatch. It runs after `Advisories`, which has ended the session's own advisory."""

    def __init__(self, graph: CallGraph, exchange: AdvisoryExchange) -> None:
        self._exchange = exchange
        self._workflows: AgentWorkflows[str] = AgentWorkflows(graph)

    @override
    def dispatched(self, record: DecisionRecord, request: InferenceRequest, took_s: float, again: bool) -> None:
        if again or not record.agent or not record.workflow_id:
            return
        tenant_id = request.tenant_id
        advice = self._workflows.started((tenant_id, record.workflow_id), record.agent, request.session_id)
        if advice.advise or advice.invalidate:
            # After the request is on its way.
            asyncio.get_running_loop().call_soon(self._send, tenant_id, advice)

    def _send(self, tenant_id: str, advice: AgentAdvice[str]) -> None:
        for session_id in advice.invalidate:
            self._exchange.withdraw(Advisory(tenant_id=tenant_id, session_id=session_id, source=SOURCE))
        for item in advice.advise:
            advisory = Advisory(
                tenant_id=tenant_id, session_id=item.session, expected_arrival_s=item.expected_s, source=SOURCE
            )
            if not self._exchange.advisories.wait_s(advisory):
                self._exchange.advise(advisory)
