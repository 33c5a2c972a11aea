"""A what-if simulates the node managers of a pool's engines."""

from __future__ import annotations

import pytest

from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import Pool
from controlplane.trials.whatif.conditions import Conditions
from controlplane.trials.whatif.engine_candidate import stand_in_nodes
from controlplane.trials.whatif.lifecycle import start_whatif
from controlplane.trials.whatif.plan import BASE
from controlplane.trials.whatif.reading import plan_of
from simulator.kv_nodes.kv_nodes_spec import KvNodesSpec
from tests.controlplane.trials.whatif.installation import ACTOR, keep, live_and_draft, recorded
from tests.web.kv_nodes.some_nodes import two_nodes

pytestmark = pytest.mark.django_db


def engines(pool: Pool) -> list[Engine]:
    return list(Engine.objects.filter(pool=pool).order_by("engine_id"))


def test_simulated_nodes_have_the_median_size_and_engines_keep_theirs(pool: Pool) -> None:
    two_nodes(pool)
    nodes = stand_in_nodes(engines(pool), 512)
    tokens = 512 * (64 << 20) // (32 << 10)
    assert nodes == KvNodesSpec(nodes=2, dram_tokens=tokens, ssd_tokens=4 * tokens, homes=(0, 1, 0, 1))
    Engine.objects.filter(engine_id="e-03").update(kv_node="")
    nodes = stand_in_nodes(engines(pool), 512)
    assert nodes is not None
    assert nodes.homes == (0, 1, -1, 1)


def test_pool_without_nodes_is_simulated_without_nodes(pool: Pool) -> None:
    assert stand_in_nodes(engines(pool), 512) is None


def test_run_receives_the_nodes(pool: Pool) -> None:
    two_nodes(pool)
    _, better = live_and_draft(pool)
    pool.refresh_from_db()
    whatif = start_whatif(keep(pool, recorded()), better, None, Conditions(seeds=1), actor=ACTOR, why="nodes")
    spec = plan_of(whatif).task(BASE, 0).spec
    assert spec.kv_nodes is not None
    assert spec.kv_nodes.nodes == 2
