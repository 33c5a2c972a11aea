"""The drawers that connect an engine and create a pool: permissions, steps, and rejections."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import Client
from pytest_django.fixtures import Settings

from controlplane.fleet.connect.engine_facts import ConnectedEngineFacts
from controlplane.fleet.engine_url import CheckedUrl
from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import Pool
from controlplane.fleet.models.region import Region
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.policies.models.policy import Policy
from gateway.bus.bus import Bus
from tests.controlplane.conftest import bus as bus_fixture
from tests.controlplane.fleet.connect.test_connection import FACTS, RANKED, URL
from tests.page_text import page_text
from tests.web.fleet.topology.topology_fleet import make_engines, make_pool, sample_of
from tests.web.role_clients import client_of, make_person
from web.fleet.topology import connect as view
from web.live.feed import FleetFeed

pytestmark = pytest.mark.django_db
bus = bus_fixture
CONNECT = "/engines/connect"


@pytest.fixture
def admin(db: None, bus: Bus, feed: FleetFeed, settings: Settings) -> Client:
    settings.ENGINE_NETWORKS = ()
    return client_of(make_person("admin"))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list of contacted addresses; each responds with FACTS."""
    addresses: list[str] = []

    def facts_at(address: CheckedUrl, **_: Any) -> ConnectedEngineFacts:
        addresses.append(address.url)
        return replace(FACTS, url=address.url)

    monkeypatch.setattr(view, "facts_at", facts_at)
    return addresses


def text_of(answer: Any) -> str:
    assert isinstance(answer, HttpResponse)
    return page_text(answer)


def test_empty_fleet_page_offers_the_drawer_to_admins(admin: Client, feed: FleetFeed) -> None:
    feed.take(sample_of([]))
    assert "Connect your first engine" in text_of(admin.get("/"))
    make_engines(make_pool(), 1)
    assert "Connect your first engine" not in text_of(admin.get("/"))
    assert "Connect your first engine" not in text_of(client_of(make_person("viewer")).get("/"))


def test_address_is_contacted_only_after_it_was_allowed(admin: Client, asked: list[str]) -> None:
    page = text_of(admin.post(CONNECT, {"url": URL, "do": "ask"}))
    assert "Allow 10.3.0.7?" in page and not asked
    page = text_of(admin.post(CONNECT, {"url": URL, "do": "ask", "allow": "10.3.0.8"}))
    assert "Allow 10.3.0.7?" in page and not asked, "consent to another address is none"
    page = text_of(admin.post(CONNECT, {"url": URL, "do": "ask", "allow": "10.3.0.7"}))
    assert asked == [URL]
    assert "Blocks of 32 tokens" in page and "new pool llama-3-1-8b" in page
    assert "10.3.0.7 is allowed" in page
    assert not Pool.objects.exists()


def test_connecting_creates_all_objects_and_shows_the_preflight(admin: Client, asked: list[str]) -> None:
    answer = admin.post(CONNECT, {"url": URL, "do": "connect", "allow": "10.3.0.7"})
    engine = Engine.objects.get()
    assert (answer.status_code, answer["Location"]) == (302, f"/engines?engine={engine.engine_id}")
    assert (engine.pool.block_tokens, engine.pool.engine_networks) == (32, "10.3.0.7/32")
    event = AuditEvent.objects.get(verb="engine.register")
    assert (event.actor_name, event.via) == ("admin", "console")


def test_rejection_shows_reason_remedy_and_start_command(
    admin: Client, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "facts_at", lambda address, **_: replace(FACTS, events=""))
    answer = admin.post(CONNECT, {"url": URL, "do": "ask", "allow": "10.3.0.7"})
    page = text_of(answer)
    assert answer.status_code == 422
    assert "publishes no KV events" in page and "vllm serve" in page and "Estimate hits" in page


def test_ranks_of_one_address_are_shown_and_connected_together(admin: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "facts_at", lambda address, **_: RANKED)
    shown = text_of(admin.post(CONNECT, {"url": URL, "do": "ask", "allow": "10.3.0.7"}))
    assert "2 data-parallel ranks" in shown
    assert "engine 10-3-0-7-8000-rank-0 and 1 more, one per rank." in shown
    answer = admin.post(CONNECT, {"url": URL, "do": "connect", "allow": "10.3.0.7"})
    assert answer.status_code == 302
    assert [engine.rank for engine in Engine.objects.order_by("name")] == [0, 1]
    page = text_of(admin.get(answer.headers["Location"]))
    assert "10-3-0-7-8000-rank-0 and 1 other rank registered" in page
    assert "0 of the process at this address" in page
    assert all(f'<span class="faint">#{rank}</span>' in page for rank in (0, 1)), "where a narrow column cuts the names"


def test_only_admins_connect_and_create_pools(admin: Client, asked: list[str]) -> None:
    operator = client_of(make_person("operator"))
    assert operator.post(CONNECT, {"url": URL, "do": "connect"}).status_code == 403
    assert operator.post("/engines/pools", {"slug": "x"}).status_code == 403
    assert "Connect an engine" not in text_of(operator.get("/engines?do=connect"))
    assert not asked


POOL = {
    "slug": "code",
    "name": "Code",
    "served_model": "coder",
    "key_source": "exact",
    "region": "",
    "new_region": "eu-west",
    "policy": "",
    "new_policy": "careful",
    "why": "new team",
}


def test_pool_is_created_with_a_new_region_and_policy(admin: Client) -> None:
    assert "New policy" in text_of(admin.get("/engines?do=pool"))
    answer = admin.post("/engines/pools", POOL)
    assert (answer.status_code, answer["Location"]) == (302, "/engines?settings=code")
    pool = Pool.objects.get()
    assert (pool.region.slug, pool.policy.slug, pool.served_model) == ("eu-west", "careful", "coder")
    assert pool.policy.live_version is not None
    verbs = list(AuditEvent.objects.order_by("pk").values_list("verb", flat=True))
    assert verbs == ["region.create", "policy.create", "policy.draft", "policy.publish", "pool.create"]
    again = {**POOL, "slug": "code-2", "region": "eu-west", "policy": "careful"}
    assert admin.post("/engines/pools", again).status_code == 302
    assert (Region.objects.count(), Policy.objects.count()) == (1, 1)


def test_invalid_pool_creates_nothing_and_keeps_the_input(admin: Client) -> None:
    answer = admin.post("/engines/pools", {**POOL, "new_policy": "not a slug"})
    page = text_of(answer)
    assert answer.status_code == 422
    assert 'id="new_policy-error"' in page and 'value="coder"' in page
    assert not Region.objects.exists() and not Policy.objects.exists()


@pytest.mark.parametrize("page", ["/", "/engines"])
def test_block_size_mismatch_shows_a_banner(page: str, admin: Client, feed: FleetFeed) -> None:
    engines = make_engines(make_pool(), 2)
    feed.take(sample_of(engines, e_0001={"block_tokens": 32}))
    shown = text_of(admin.get(page))
    assert "Pool chat expects blocks of 512 tokens, but e-0001 has 32" in shown
    assert "Set the pool&#x27;s block size to 32" in shown
    Pool.objects.update(block_tokens=32)
    assert "expects blocks of" not in text_of(admin.get(page))


def test_block_size_is_set_in_the_settings_of_the_pool(admin: Client) -> None:
    pool = make_pool()
    form = {"name": "Chat", "max_prompt_tokens": "4096", "revision": "1", "block_tokens": "32"}
    assert admin.post(f"/engines/pools/{pool.slug}/change", form).status_code == 302
    pool.refresh_from_db()
    assert pool.block_tokens == 32
    bad = {**form, "revision": "2", "block_tokens": "many"}
    assert "Enter a whole number." in text_of(admin.post(f"/engines/pools/{pool.slug}/change", bad))
