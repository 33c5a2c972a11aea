"""Findings of the doctor about node managers."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.utils import timezone

from controlplane.doctor import fleet
from controlplane.doctor.finding import State
from controlplane.doctor.installation import Installation
from controlplane.fleet.engine_registration import change_engine, register_engine
from controlplane.fleet.models.pool import Pool
from controlplane.kv_nodes.models.kv_node import KvNode
from tests.controlplane.kv_nodes.node_words import NODES, reported

pytestmark = pytest.mark.django_db


@pytest.fixture
def here(tmp_path: Path) -> Installation:
    return Installation(tmp_path, "127.0.0.1", 1, "", timezone.now())


def test_without_nodes_and_references_to_nodes_there_is_no_finding(here: Installation) -> None:
    assert fleet.kv_nodes(here) == []


def test_reporting_nodes_are_counted(here: Installation) -> None:
    reported("kv-1")
    reported("kv-2", state="draining")
    [finding] = fleet.kv_nodes(here)
    assert (finding.state, finding.says) == (State.OK, "2 KV nodes report.")


def test_silent_nodes_and_engines_of_unavailable_nodes_are_named(here: Installation, pool: Pool) -> None:
    reported("kv-1")
    KvNode.objects.update(state="silent")
    first = register_engine(pool, "e-1", "http://127.0.0.1:1", actor=NODES, engine_id="e-1", kv_node="kv-1")
    register_engine(pool, "e-2", "http://127.0.0.1:2", actor=NODES, engine_id="e-2", kv_node="kv-9")
    silent, astray = fleet.kv_nodes(here)
    assert "1 KV node for 15 s: kv-1." in silent.says
    assert "No KV node has the name set for 2 engines: e-1 (kv-1), e-2 (kv-9)." in astray.says
    reported("kv-1")
    change_engine(first, {"kv_node": ""}, actor=NODES)
    [astray] = fleet.kv_nodes(here)
    assert "No KV node has the name set for 1 engine" in astray.says
