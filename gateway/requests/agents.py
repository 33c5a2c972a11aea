"""The agent and the workflow that a request names."""

from __future__ import annotations

from collections.abc import Mapping

AGENT, WORKFLOW = b"x-agent", b"x-workflow-id"
MAX_AGENT, MAX_WORKFLOW = 128, 256


def agent_of(headers: Mapping[bytes, bytes]) -> tuple[str, str]:
    """Return the agent's name and the workflow's id, or two empty strings unless both are given."""
    agent = headers.get(AGENT, b"").decode("latin-1").strip()[:MAX_AGENT]
    workflow = headers.get(WORKFLOW, b"").decode("latin-1").strip()[:MAX_WORKFLOW]
    return (agent, workflow) if agent and workflow else ("", "")


def session_of_agent(agent: str, workflow_id: str) -> str:
    """Return the session for an agent's requests that name none: one per agent and workflow."""
    return f"{workflow_id}/{agent}"[:256] if agent and workflow_id else ""
