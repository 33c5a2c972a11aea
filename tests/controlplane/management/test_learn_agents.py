"""`manage.py learn_agents` turns recorded requests into the body of a change of the call graph."""

from __future__ import annotations

import time
from io import StringIO
from pathlib import Path

import msgspec
import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from controlplane.request_log.call_graph import checked_graph
from routing.advisories.call_graph import NextAgent
from tests.controlplane.request_log.recordings.traffic import record, row

pytestmark = pytest.mark.django_db


def test_command_writes_the_body_of_a_change(tmp_path: Path) -> None:
    begin = time.time() - 600
    steps = [("engineer", 0.0), ("reviewer", 6.0), ("engineer", 10.0), ("manager", 12.0)]
    record([row(arrived_at=begin + after, agent=agent, workflow="w") for agent, after in steps])
    record([row(arrived_at=begin + 1, agent="manager", workflow="w", tenant="other"), row(arrived_at=begin + 2)])
    out, printed = tmp_path / "agents.json", StringIO()
    call_command("learn_agents", out=out, stdout=printed)
    graph = checked_graph(msgspec.json.decode(out.read_bytes())["agents"])
    assert graph.agents["engineer"] == (NextAgent("manager", 0.5, 2.0), NextAgent("reviewer", 0.5, 6.0))
    assert graph.agents["reviewer"] == (NextAgent("engineer", 1.0, 4.0),)
    assert "reviewer 50% 6.0 s" in printed.getvalue()


def test_requests_without_agents_are_rejected() -> None:
    record([row(arrived_at=time.time() - 5)])
    with pytest.raises(CommandError, match="x-agent"):
        call_command("learn_agents", stdout=StringIO())
    with pytest.raises(CommandError):
        call_command("learn_agents", pool="another", stdout=StringIO())
