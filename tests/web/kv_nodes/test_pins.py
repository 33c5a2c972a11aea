"""Pins and rules of nodes on the KV store page, and the people who may change them."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from controlplane.fleet.models.pool import Pool
from controlplane.kv_nodes.models.kv_node import KvNodeReport
from controlplane.platform.models.audit_event import AuditEvent
from tests.controlplane.kv_nodes.node_words import reported
from tests.web.kv_nodes.some_nodes import report, some_pins
from tests.web.role_clients import client_of, make_person, make_pool

pytestmark = pytest.mark.django_db


@pytest.fixture
def pool(db: None) -> Pool:
    reported("kv-1", report=report(3, {}, **some_pins()))
    return make_pool()


def text(client: Client, query: str = "") -> str:
    answer = client.get(f"/cache/store{query}")
    assert answer.status_code == 200
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.content.decode())).replace("\u202f", " ")


def test_pins_are_listed_by_hash_largest_first(pool: Pool) -> None:
    page = text(client_of(make_person("viewer")))
    assert "c0ffee00 acme kv-1 33k 2.00 MiB 59 min" in page
    assert "39.1 % 2.50 MiB of 6.40 MiB" in page
    assert page.index("c0ffee00") < page.index("0ddba11a")
    assert "3 smaller pins are not shown." in page
    assert "Unpin" not in page


def test_empty_page_explains_how_to_pin(pool: Pool) -> None:
    reported("kv-1")
    assert "Nothing pinned" in text(client_of(make_person("viewer")))


def test_operators_unpin_after_a_confirmation(pool: Pool) -> None:
    operator, viewer = client_of(make_person("operator")), client_of(make_person("viewer"))
    link = re.search(r'href="(/cache/store\?unpin=c0ffee00[^"]*)"', operator.get("/cache/store").content.decode())
    assert link is not None
    address = link[1].replace("&amp;", "&")
    assert "Unpin c0ffee00 on kv-1?" in text(operator, address.removeprefix("/cache/store"))
    assert "Unpin c0ffee00" not in text(viewer, address.removeprefix("/cache/store"))
    form = {"pin": "c0ffee00" * 2, "tenant": "acme", "why": "room for others"}
    assert viewer.post("/cache/store/kv-1/unpin", form).status_code == 403
    assert not AuditEvent.objects.filter(verb="kv_node.unpin").exists()
    answer = operator.post("/cache/store/kv-1/unpin", form)
    assert (answer.status_code, answer["Location"]) == (303, "/cache/store?said=unpinned")
    assert KvNodeReport.objects.get().unpin == [{"name": "c0ffee00" * 2, "tenant": "acme"}]
    assert AuditEvent.objects.get(verb="kv_node.unpin").why == "room for others"
    page = text(operator, "?said=unpinned")
    assert "Unpinning…" in page
    assert "The node applies it" in page


def test_pin_that_ended_meanwhile_is_reported(pool: Pool) -> None:
    operator = client_of(make_person("operator"))
    rejected = operator.post("/cache/store/kv-1/unpin", {"pin": "0" * 16, "tenant": "acme"})
    assert rejected.status_code == 409
    assert "KV node kv-1 has no such pin any more." in rejected.content.decode()
    assert operator.post("/cache/store/nobody/unpin", {"pin": "0" * 16, "tenant": "acme"}).status_code == 404


def test_operators_choose_the_rules_of_a_node(pool: Pool) -> None:
    operator, viewer = client_of(make_person("operator")), client_of(make_person("viewer"))
    reported("kv-1", report=report(3, {}, eviction="leaf_lru", ssd_policy="write_through"))
    assert "Evicts: Leaf-LRU To SSD: All blocks Set rules" in text(operator)
    assert "Set rules" not in text(viewer, "?rules=kv-1")
    assert "Rules of KV node kv-1" in text(operator, "?rules=kv-1")
    chosen = {"eviction": "rlt", "ssd_policy": "peaks", "why": "chats"}
    assert viewer.post("/cache/store/kv-1/rules", chosen).status_code == 403
    answer = operator.post("/cache/store/kv-1/rules", chosen)
    assert (answer.status_code, answer["Location"]) == (303, "/cache/store?said=rules")
    assert AuditEvent.objects.get(verb="kv_node.rules").why == "chats"
    assert "Evicts: Leaf-LRU (applies soon) To SSD: All blocks (applies soon)" in text(operator)
    reported("kv-1", report=report(4, {}, eviction="rlt", ssd_policy="peaks"))
    assert "Evicts: RLT (chosen) To SSD: Pinned blocks and peaks (chosen)" in text(operator)
    answer = operator.post("/cache/store/kv-1/rules", {"eviction": "most_recent"})
    assert answer.status_code == 422
