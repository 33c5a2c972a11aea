"""Objects that tests of the pages under Access use: a tenant, an admin, and a key if needed."""

from __future__ import annotations

import pytest
from django.core.cache import cache
from django.test import Client

from controlplane.access.api_keys import create_api_key
from controlplane.platform.actor import program
from controlplane.platform.bus import get_bus
from controlplane.platform.models.api_key import ApiKey
from controlplane.platform.models.tenant import Tenant
from tests.web.role_clients import client_of, make_person

PROGRAM = program("test")
ADMIN_PAGES = ("/access/keys", "/access/people", "/access/sessions", "/access/tenants", "/access/secrets")
CANARY = "canary-pass-9f31"


@pytest.fixture(autouse=True)
def fresh(settings: object) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    cache.clear()
    get_bus.cache_clear()


@pytest.fixture
def tenant() -> Tenant:
    return Tenant.objects.create(slug="acme", name="Acme")


@pytest.fixture
def admin(db: None) -> Client:
    return client_of(make_person("admin"))


def new_key(tenant: Tenant, name: str = "k", **fields: object) -> ApiKey:
    return create_api_key(tenant, name, actor=PROGRAM, **fields)[0]
