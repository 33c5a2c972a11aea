"""The Services page: visibility, creation, change, deletion, and what providers cost."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from django.http import HttpResponse
from django.test import Client

from controlplane.fleet.model_services import create_service
from controlplane.fleet.models.model_service import ModelService, ProviderUsage
from controlplane.fleet.models.pool import Pool
from controlplane.platform.actor import program
from tests.web.role_clients import ROLES, client_of, make_person

pytestmark = pytest.mark.django_db
ALL_POOLS = ("viewer", "operator", "admin", "superuser")


@pytest.fixture
def admin(pool: Pool) -> Client:
    return client_of(make_person("admin"))


def words(answer: HttpResponse) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.content.decode()))


@pytest.mark.parametrize("role", ROLES)
def test_the_page_requires_a_role_in_all_pools_and_changes_an_admin(pool: Pool, role: str) -> None:
    create_service("chat", pools=[pool.slug], actor=program("test"))
    client = client_of(make_person(role, pool))
    assert client.get("/engines/services").status_code == (200 if role in ALL_POOLS else 403)
    assert client.get("/engines/services.csv").status_code == (200 if role in ALL_POOLS else 403)
    is_admin = role in ("admin", "superuser")
    assert (b"Save" in client.get("/engines/services?service=chat").content) == is_admin
    answer = client.post("/engines/services", {"slug": "new", "pools": pool.slug})
    assert answer.status_code == (303 if is_admin else 403)
    assert ModelService.objects.filter(slug="new").exists() == is_admin


def test_a_service_is_added_changed_and_deleted(admin: Client, pool: Pool) -> None:
    form = {"slug": "chat", "aliases": "gpt-x, gpt-y", "pools": pool.slug, "provider_url": "https://api.example.com/v1"}
    assert admin.post("/engines/services", form).headers["Location"] == "/engines/services?service=chat&said=created"
    service = ModelService.objects.get()
    assert (service.aliases, service.pools, service.fallback) == (["gpt-x", "gpt-y"], [pool.slug], False)
    page = words(admin.get("/engines/services?service=chat"))
    assert "gpt-x, gpt-y" in page
    change = {"service": "chat", "revision": "1", "aliases": "", "pools": pool.slug, "fallback": "on"}
    assert admin.post("/engines/services", change).status_code == 422
    change |= {"provider_model": "big", "provider_url": "https://api.example.com/v1", "input_cost": "2.5"}
    assert admin.post("/engines/services", change).status_code == 303
    service.refresh_from_db()
    assert (service.fallback, service.aliases, service.input_cost, service.revision) == (True, [], 2.5, 2)
    assert admin.post("/engines/services", change).status_code == 412
    assert "Delete service chat?" in words(admin.get("/engines/services?service=chat&delete"))
    assert admin.post("/engines/services", {"service": "chat", "do": "delete"}).status_code == 303
    assert not ModelService.objects.exists()


def test_the_list_shows_the_cost_of_the_last_days(admin: Client, pool: Pool) -> None:
    create_service("chat", pools=[pool.slug], actor=program("test"))
    today = datetime.now(UTC).date()
    for days, cost in ((0, 1.25), (2, 0.5), (90, 40.0)):
        ProviderUsage.objects.create(service="chat", day=today - timedelta(days=days), requests=2, cost=cost)
    page = words(admin.get("/engines/services"))
    assert "4 $1.75" in page
