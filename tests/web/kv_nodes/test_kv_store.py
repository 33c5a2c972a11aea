"""The KV store page: its visibility, and its texts for nodes in every state."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import Pool
from controlplane.kv_nodes.models.kv_node import KvNode, KvNodeReport, KvNodeState
from kvstore.node.node_report import LinkReport, NodeReport
from tests.controlplane.kv_nodes.node_words import reported
from tests.controlplane.kv_nodes.some_orders import row, store_orders
from tests.web.kv_nodes.some_nodes import all_states, report, two_nodes
from tests.web.role_clients import ROLES, client_of, make_person
from web.kv_nodes.move_rows import SHOWN
from web.kv_nodes.transfer_matrix import MAX_CLIENTS, MAX_NODES, transfer_matrix

pytestmark = pytest.mark.django_db


def text(client: Client, query: str = "", tab: str = "store") -> str:
    answer = client.get(f"/cache/{tab}{query}")
    assert answer.status_code == 200
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.content.decode()))


@pytest.mark.parametrize("role", ROLES)
def test_kv_store_page_requires_a_role_in_all_pools(pool: Pool, role: str) -> None:
    two_nodes(pool)
    answer = client_of(make_person(role, pool)).get("/cache/store")
    assert answer.status_code == (200 if role in ("viewer", "operator", "admin", "superuser") else 403)
    assert (b"kv-1" in answer.content) == (answer.status_code == 200)


def test_installation_without_nodes_shows_how_to_add_one(viewer: Client) -> None:
    page = text(viewer)
    assert "No KV nodes" in page
    assert "manage.py node --register" in page


def test_page_shows_tiers_and_the_owners_of_blocks(viewer: Client, pool: Pool) -> None:
    two_nodes(pool)
    page = text(viewer)
    assert "2 of 2 KV nodes serving." in page
    assert "59.4 MiB of 64.0 MiB 93 %" in page.replace("\u202f", " ")
    assert "used by e-01, e-03" in page
    # 79 hits and 21 misses of each hundred, 100 on each node in ten seconds.
    assert "of 20 blocks/s requested" in page.replace("\u202f", " ")
    assert "79.0 %" in page.replace("\u202f", " ")
    assert "reported just now" in page


def test_scale_of_simulated_payloads_is_shown_if_there_are_any(viewer: Client, pool: Pool) -> None:
    two_nodes(pool)
    assert "scaled by the same factor" not in text(viewer)
    Engine.objects.filter(name="e-01").update(supervised=True)
    assert "64 bytes per token, 1/896 of a 7B model" in text(viewer)


def test_links_have_the_names_of_engines_and_nodes(viewer: Client, pool: Pool) -> None:
    two_nodes(pool)
    page = text(viewer, "?fragment=1").replace("\u202f", " ")
    assert "<html" not in viewer.get("/cache/store?fragment=1").content.decode()
    assert "To from kv-1 from kv-2 Stored in total" in page
    assert "e-01 105 kB/s link 2.05 GB/s, 410 MiB in total — 96.0 MiB" in page
    assert "21001" not in page


def test_full_tiers_and_their_evictions_are_in_the_title(viewer: Client, pool: Pool) -> None:
    two_nodes(pool)
    now, full = timezone.now(), report(30, {}, stored=1)
    for tier in full["tiers"]:
        tier["used_slots"] = tier["slots"]
    full["tiers"][1]["evicted"] = 50
    reported("kv-1", now=now, report=report(30, {}))
    reported("kv-1", now=now + timedelta(seconds=5), report=full)
    reported("kv-1", now=now + timedelta(seconds=10), report=full | {"tiers": [*full["tiers"]]})
    page = text(viewer)
    assert "2 of 2 KV nodes serving; all tiers of kv-1 are full" in page
    assert "A full store evicts a block for each new one" in page
    assert "5.0 blocks/s leave the store" in page.replace("\u202f", " ")


def test_problems_are_listed_first(viewer: Client, pool: Pool) -> None:
    all_states(pool)
    page = text(viewer)
    assert "kv-3 is silent." in page
    for state in ("Serving", "Silent", "Draining", "Stopped"):
        assert state in page
    KvNode.objects.filter(name="kv-3").update(state="serving")
    assert "Corrupt copies on kv-3." in text(viewer)
    KvNode.objects.filter(name="kv-3").delete()
    assert "kv-4 drains." in text(viewer)
    KvNode.objects.filter(name="kv-4").delete()
    assert "2 of 3 KV nodes serving." in text(viewer)


def test_disk_smaller_than_its_tier_is_reported(viewer: Client, pool: Pool) -> None:
    tier = {"medium": "STORAGE", "slots": 8192, "withheld_slots": 2048, "used_slots": 6144}
    reported("kv-1", report={"tiers": [tier], "write_through_failed": 3}, slot_bytes=32 << 10)
    page = " ".join(text(viewer).replace("\u202f", " ").split())
    assert "No disk space for the whole tier on kv-1." in page
    assert "192 MiB of 192 MiB 100 %" in page
    assert "disk full: 64.0 MiB unavailable" in page
    assert "reserved" not in page
    disk = {"disk_bytes": 10 << 30, "disk_free_bytes": 900 << 20, "disk_reserve_bytes": 1 << 30}
    reported("kv-1", report={"tiers": [tier], **disk}, slot_bytes=32 << 10)
    page = " ".join(text(viewer).replace("\u202f", " ").split())
    assert "disk full: 64.0 MiB unavailable, 900 MiB free, 1.00 GiB reserved" in page
    reported("kv-1", report={"tiers": [{**tier, "withheld_slots": 0}]}, slot_bytes=32 << 10)
    assert "disk space" not in text(viewer)


def test_nodes_without_a_readable_report_are_shown_without_counts(viewer: Client, pool: Pool) -> None:
    KvNode.objects.create(name="kv-8", address="127.0.0.1:1")
    reported("kv-9")
    KvNodeReport.objects.update(content={"tiers": "of a later program"})
    page = text(viewer)
    assert "no report yet" in page
    assert "kv-9" in page


def test_markup_in_client_names_is_escaped(viewer: Client, pool: Pool) -> None:
    links = [{"peer": "<script>alert(1)</script>", "sent_bytes": 5}]
    reported("kv-1", report={"links": links})
    assert "<script>alert" not in viewer.get("/cache/store").content.decode()


def test_page_of_many_nodes_and_engines_takes_few_queries(
    viewer: Client, pool: Pool, django_assert_max_num_queries: pytest.FixtureRequest
) -> None:
    two_nodes(pool)
    for number in range(20):
        reported(f"n-{number}")
    with django_assert_max_num_queries(12):  # type: ignore[operator]
        viewer.get("/cache/store")


def test_matrix_shows_the_nodes_and_clients_with_the_most_transfers() -> None:
    from web.kv_nodes.node_rows import NodeRow

    def row(number: int) -> NodeRow:
        links = [
            LinkReport(peer=f"p-{peer:02d}", sent_bytes=peer * number, received_bytes=1)
            for peer in range(1, MAX_CLIENTS + 4)
        ]
        return NodeRow(f"n-{number:02d}", "", KvNodeState.SERVING, 0, NodeReport(links=links), over_s=10.0)

    matrix = transfer_matrix([row(number) for number in range(1, MAX_NODES + 3)], {"p-27": "an engine"})
    assert matrix.nodes == tuple(f"n-{number:02d}" for number in range(3, MAX_NODES + 3))
    assert (len(matrix.lines), matrix.more) == (MAX_CLIENTS, 3)
    names = [line.name for line in matrix.lines]
    assert "an engine" in names
    assert "p-01" not in names
    most = next(line for line in matrix.lines if line.name == "an engine")
    assert most.cells[-1] is not None
    assert most.cells[-1][1:] == (8, "27\u202fB/s")


def test_page_shows_orders_and_their_benefit(viewer: Client, pool: Pool) -> None:
    two_nodes(pool)
    empty = text(viewer, tab="moves")
    assert "No moves yet; no advisories" in empty
    assert "when a queued request waits for an engine whose node lacks its prefix" in empty
    store_orders(
        row("o-1", loads=2, saved_tokens=4096, worth="useful"),
        row("o-2", planner="replicate", worth="useless", asked_at=1_800_000_001.0),
        row("o-3", outcome="missing", blocks=3, bytes=3072, worth="none", asked_at=1_800_000_002.0),
        row("o-4", source="kv-2", asked_at=1_800_000_003.0),
    )
    page = text(viewer, "?fragment=1", "moves").replace("\u202f", " ")
    assert "4 moves, 1 of 2 evaluated useful; no advisories" in page
    assert "Moved 64.0 KiB 64 of 64 blocks 12 ms 4.1k tokens saved 2 loads" in page
    assert "Replication repeatedly loaded from another node kv-1 → kv-2" in page
    assert "12 ms Useless" in page
    assert "Missing 3.00 KiB 3 of 64 blocks" in page
    assert "SSD of kv-2 → kv-2" in page
    assert "Not loaded yet" in page
    assert "Prefetch: 3 moves, 131 KiB moved, 4.1k tokens saved; 1 of 1 evaluated moves were useful." in page
    assert "Replication: 1 move, 64.0 KiB moved, 0 tokens saved; 0 of 1 evaluated moves were useful." in page


def test_freed_cold_copy_is_listed_as_an_order(viewer: Client, pool: Pool) -> None:
    two_nodes(pool)
    store_orders(
        row("o-1", planner="shrink", outcome="freed", worth="useful"),
        row("o-3", planner="shrink", outcome="freed", worth="useless", asked_at=1_800_000_002.0),
        row("o-4", planner="shrink", outcome="freed", worth="open", asked_at=1_800_000_003.0),
        row("o-2", planner="shrink", outcome="kept", blocks=0, bytes=0, worth="none", asked_at=1_800_000_001.0),
    )
    page = text(viewer, "?fragment=1", "moves").replace("\u202f", " ")
    assert "Cold copies a replica that no engine loads from kv-2 kv-1 keeps its copy" in page
    assert "Freed 64.0 KiB 64 of 64 blocks 12 ms Not needed again" in page
    assert "Freed 64.0 KiB 64 of 64 blocks 12 ms Needed again" in page
    assert "Freed 64.0 KiB 64 of 64 blocks 12 ms Not needed so far" in page
    assert "Kept 0 B 0 of 64 blocks" in page
    assert "Cold copies: 4 moves, 192 KiB freed; 1 of 2 freed copies were needed again." in page


def test_long_list_of_orders_is_shortened(viewer: Client, pool: Pool) -> None:
    two_nodes(pool)
    store_orders(*(row(f"o-{number}") for number in range(SHOWN + 5)))
    assert "5 more in the API." in text(viewer, tab="moves")


def test_operators_of_the_whole_fleet_delete_nodes_without_reports(pool: Pool) -> None:
    all_states(pool)
    operator, viewer = client_of(make_person("operator")), client_of(make_person("viewer"))
    assert "/cache/store?delete=kv-3" in operator.get("/cache/store").content.decode()
    assert "/cache/store?delete=" not in viewer.get("/cache/store?delete=kv-3").content.decode()
    assert "Delete KV node kv-3?" in text(operator, "?delete=kv-3")
    assert "Delete KV node" not in text(operator, "?delete=kv-1")
    assert viewer.post("/cache/store/kv-3/delete").status_code == 403
    rejected = operator.post("/cache/store/kv-1/delete")
    assert rejected.status_code == 409
    assert "kv node kv-1 is serving; stop it first" in rejected.content.decode().replace("KV node", "kv node")
    answer = operator.post("/cache/store/kv-3/delete", {"why": "scrapped"})
    assert (answer.status_code, answer["Location"]) == (303, "/cache/store?said=deleted")
    assert not KvNode.objects.filter(name="kv-3").exists()
    assert "Node deleted." in text(operator, "?said=deleted")
    assert operator.post("/cache/store/kv-3/delete").status_code == 404
