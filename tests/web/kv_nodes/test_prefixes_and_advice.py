"""Hottest prefixes with their copies, and whether loads beat computing."""

from __future__ import annotations

import re

import pytest
from django.test import Client
from django.utils import timezone

from controlplane.fleet.models.pool import Pool
from controlplane.kv_nodes.models.kv_node import KvNode
from routing.cost.cost_model import PrefillCost
from tests.controlplane.trials.whatif.installation import live_and_draft
from tests.web.kv_nodes.some_nodes import hearing_of, two_nodes
from tests.web.role_clients import client_of, make_person, make_pool
from web.kv_nodes import prefix_rows as prefixes
from web.kv_nodes.load_advice import least_rate, load_advice
from web.kv_nodes.node_rows import node_row

pytestmark = pytest.mark.django_db


@pytest.fixture
def pool(db: None) -> Pool:
    pool = make_pool()
    two_nodes(pool)
    return pool


@pytest.fixture
def viewer(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> Client:
    hearing = hearing_of(pool)
    monkeypatch.setattr(prefixes, "affinity_hearing", lambda: hearing)
    return client_of(make_person("viewer"))


def test_the_most_frequent_prefixes_come_first_with_their_copies(viewer: Client, pool: Pool) -> None:
    rows = prefixes.prefix_rows([pool], ["kv-1", "kv-2"], timezone.now().timestamp())
    assert [(row.hash, row.copies, row.engines) for row in rows] == [
        ("aaaaaaaa", 2, 2),
        ("bbbbbbbb", 2, 1),
        ("cccccccc", 0, 0),
    ]
    assert [cell.tier for cell in rows[1].cells] == ["dram", "ssd"]
    page = viewer.get("/kv").content.decode()
    assert re.findall(r"kv-copy-(?:dram|ssd)\" role", page) == ['kv-copy-dram" role'] * 3 + ['kv-copy-ssd" role']
    assert 'title="kv-2: on SSD"' in page


def test_without_shared_prefixes_it_says_so(pool: Pool) -> None:
    assert b"No shared prefixes" in client_of(make_person("viewer")).get("/kv").content


def test_a_load_pays_from_the_rate_at_which_it_takes_as_long_as_computing() -> None:
    cost = PrefillCost(0.01, 0.0001, 0.0, 0.0)
    assert least_rate(cost, 1000.0, 8192) == pytest.approx(1000 * 8192 / (0.0001 * 8191))
    assert least_rate(PrefillCost(0.01, 0.0, 0.0, 0.0), 1000.0) == float("inf")


def test_links_that_are_too_slow_are_counted(pool: Pool) -> None:
    live_and_draft(pool)
    now = timezone.now()
    nodes = [node_row(node, now) for node in KvNode.objects.order_by("name")]
    (advice,) = load_advice(nodes)
    assert (advice.pool, advice.links, advice.slower, advice.verdict) == (pool.name, 6, 0, "Load")
    for row in nodes:
        object.__setattr__(row, "slot_bytes", 4 << 30)
    (advice,) = load_advice(nodes)
    assert (advice.slower, advice.verdict) == (6, "Compute")
