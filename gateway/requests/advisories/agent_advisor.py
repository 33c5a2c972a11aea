"""Sends advisories for agents: when one agent starts, for the sessions of the likely next agents (SYMPHONY §3.5).

A request names its agent and its workflow; the call graph predicts the next agents and their times. Advisories for
branches that are not taken are withdrawn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from typing_extensions import override

from gateway.contracts.advisory import Advisory
from gateway.pools.pool.request_listener import RequestListener
from routing.advisories.agent_workflows import AgentAdvice, AgentWorkflows
from routing.advisories.call_graph import NO_AGENTS, CallGraph

if TYPE_CHECKING:
    from gateway.pools.pool.recent_decisions import DecisionRecord
    from gateway.requests.advisories.advisory_exchange import AdvisoryExchange
    from routing.values.inference_request import InferenceRequest

SOURCE = "agents"
"""Source name under which these advisories are counted."""


class AgentAdvisor(RequestListener):
    """Sends advisories on each dispatch. It runs after `Advisories`, which has ended the session's own advisory."""

    def __init__(self, graph: Callable[[], CallGraph], exchange: AdvisoryExchange) -> None:
        """`graph` returns the call graph in force. Workflows that run continue with a new one."""
        self._graph, self._exchange = graph, exchange
        self._workflows: AgentWorkflows[str] = AgentWorkflows(NO_AGENTS)

    @override
    def dispatched(self, record: DecisionRecord, request: InferenceRequest, took_s: float, again: bool) -> None:
        if again or not record.agent or not record.workflow_id:
            return
        tenant_id, self._workflows.graph = request.tenant_id, self._graph()
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
