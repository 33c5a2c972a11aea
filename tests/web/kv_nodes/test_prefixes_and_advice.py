"""Hottest prefixes with their copies, whether loads are faster than computing, and whether compression would pay."""

from __future__ import annotations

import re

import pytest
from django.test import Client
from django.utils import timezone

from controlplane.fleet.models.pool import Pool
from controlplane.history.cache_locality.copies_series import MAX_SERIES, CopiesSeries
from controlplane.kv_nodes.models.kv_node import KvNode
from controlplane.platform.bus import get_bus
from controlplane.platform.models.audit_event import AuditEvent
from gateway.contracts.cache_locality_sample import SharedPrefix
from gateway.contracts.kv_move import REPLICAS, decode_replicas
from routing.cost.cost_model import PrefillCost
from tests.controlplane.kv_nodes.node_words import reported
from tests.controlplane.trials.whatif.installation import live_and_draft
from tests.web.kv_nodes.some_nodes import intake_of, sample_of, two_nodes
from tests.web.role_clients import client_of, make_person, make_pool
from web.kv_nodes import prefix_rows as prefixes
from web.kv_nodes.load_advice import least_rate, load_advice
from web.kv_nodes.node_rows import compression_rows, node_row

pytestmark = pytest.mark.django_db


@pytest.fixture
def pool(db: None) -> Pool:
    pool = make_pool()
    two_nodes(pool)
    return pool


@pytest.fixture
def viewer(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> Client:
    intake = intake_of(pool)
    monkeypatch.setattr(prefixes, "cache_locality_intake", lambda: intake)
    return client_of(make_person("viewer"))


def test_most_frequent_prefixes_are_listed_first_with_their_copies(viewer: Client, pool: Pool) -> None:
    rows = prefixes.prefix_rows([pool], ["kv-1", "kv-2"], timezone.now().timestamp())
    assert [(row.prefix.key[:8], row.copies, len(row.prefix.holders)) for row in rows] == [
        ("aaaaaaaa", 2, 2),
        ("bbbbbbbb", 2, 1),
        ("cccccccc", 0, 0),
    ]
    assert list(rows[1].tiers.values()) == ["dram", "ssd"]
    page = viewer.get("/cache/store").content.decode()
    assert re.findall(r"kv-copy-(?:dram|ssd)\" role", page) == ['kv-copy-dram" role'] * 3 + ['kv-copy-ssd" role']
    assert 'title="kv-2: on SSD"' in page


@pytest.mark.django_db(transaction=True)
def test_operators_set_the_copies_of_a_prefix(viewer: Client, pool: Pool) -> None:
    operator, values = client_of(make_person("operator")), list[bytes]()
    get_bus().subscribe(REPLICAS + pool.slug, lambda _topic, value: values.append(value))
    key = prefixes.prefix_rows([pool], ["kv-1", "kv-2"], timezone.now().timestamp())[0].prefix.key
    link = f"/cache/store?pool={pool.slug}&copies={key}"
    assert link.replace("&", "&amp;") in operator.get("/cache/store").content.decode()
    assert f"Copies of {key[:8]} in" in operator.get(link).content.decode()
    assert f"Copies of {key[:8]} in" not in viewer.get(link).content.decode()
    address = f"/cache/prefixes/{pool.slug}/copies"
    assert viewer.post(address, {"prefix": key, "copies": "1"}).status_code == 403
    for copies in ("0", "65", "two", ""):
        assert operator.post(address, {"prefix": key, "copies": copies}).status_code == 422
    assert operator.post(address, {"prefix": "no key", "copies": "1"}).status_code == 422
    assert values == []
    answer = operator.post(address, {"prefix": key, "copies": "1", "why": "room"})
    assert (answer.status_code, answer["Location"]) == (303, "/cache/store?said=copies")
    (order,) = map(decode_replicas, values)
    assert (order.pool_id, order.prefix, order.copies) == (pool.slug, key, 1)
    event = AuditEvent.objects.get(verb="kv_prefix.copies")
    assert (event.after, event.why) == ({"prefix": key, "copies": 1}, "room")


def test_copies_of_a_prefix_are_shown_over_the_last_hour(pool: Pool) -> None:
    series, now = CopiesSeries(), 60_000.0
    for minutes_ago, nodes in ((70, 3), (59, 1), (2, 2), (2, 1), (0, 4)):
        names = tuple(f"kv-{number}" for number in range(nodes))
        shared = SharedPrefix("aaaaaaaa00000000", -1, 0, 1, 4, 90, dram_nodes=names[:1], ssd_nodes=names)
        series.note(sample_of(pool, [shared], now - 60 * minutes_ago))
    counted = series.of(pool.slug, "aaaaaaaa00000000", now)
    assert (len(counted), counted[0], counted[1], counted[-3:]) == (60, 1, None, (2, None, 4))
    row = prefixes.PrefixRow(pool, shared, 1.0, {}, counted)
    assert row.bars == [(0, 25.0), (57, 50.0), (59, 100.0)]
    assert row.course == "1 to 4 copies in the last hour"
    for number in range(MAX_SERIES):
        other = SharedPrefix(f"{number:016x}", -1, 0, 1, 4, 90)
        series.note(sample_of(pool, [other], now))
    assert (len(series), set(series.of(pool.slug, shared.key, now))) == (MAX_SERIES, {None})


def test_page_reports_that_no_prefix_is_shared(pool: Pool) -> None:
    assert b"No shared prefixes" in client_of(make_person("viewer")).get("/cache/store").content


def test_load_pays_above_the_rate_at_which_it_equals_computing() -> None:
    cost = PrefillCost(0.01, 0.0001, 0.0, 0.0)
    assert least_rate(cost, 1000.0, 8192) == pytest.approx(1000 * 8192 / (0.0001 * 8191))
    assert least_rate(PrefillCost(0.01, 0.0, 0.0, 0.0), 1000.0) == float("inf")


def test_compression_pays_if_disks_are_busy_with_reads(pool: Pool, viewer: Client) -> None:
    nodes = [node_row(node) for node in KvNode.objects.order_by("name")]
    busy, idle = compression_rows(nodes)
    assert (busy[0].name, busy[1].pays) == ("kv-1", True)
    assert (idle[0].name, idle[1].pays) == ("kv-2", False)
    page = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", viewer.get("/cache/store").content.decode())).replace(
        "\u202f", " "
    )
    assert "kv-1 64.4 % 0.94 × Compress" in page
    assert "kv-2 0.0 % 1.04 × Do not compress" in page
    reported("kv-2", report={"tiers": [{"medium": "STORAGE", "slots": 8}], "disk_busy": 0.9})
    page = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", viewer.get("/cache/store").content.decode())).replace(
        "\u202f", " "
    )
    assert "Do not compress no reads from its disk" in page


def test_nodes_without_a_disk_have_no_compression_advice(pool: Pool) -> None:
    reported("kv-9", report={"tiers": [{"medium": "CPU", "slots": 8}], "disk_busy": 0.9})
    assert compression_rows([node_row(KvNode.objects.get(name="kv-9"))]) == []


def test_too_slow_links_are_counted(pool: Pool) -> None:
    live_and_draft(pool)
    nodes = [node_row(node) for node in KvNode.objects.order_by("name")]
    (advice,) = load_advice(nodes)
    assert (advice["pool"], advice["links"], advice["verdict"]) == (pool, 6, "Load")
    for row in nodes:
        object.__setattr__(row, "slot_bytes", 4 << 30)
    (advice,) = load_advice(nodes)
    assert advice["verdict"] == "Compute"
