"""Fills an empty installation so that it can be used at once. Every step is harmless when repeated."""

from __future__ import annotations

import time

from django.contrib.auth import get_user_model
from django.db import transaction

from controlplane.demo_names import POOL, SERVED_MODEL, TENANT
from controlplane.first_run_secrets import FirstRunSecrets
from controlplane.models import ApiKey, Engine, Policy, Pool, Region, Tenant
from controlplane.services.api_keys import adopt_api_key, hash_api_key
from controlplane.services.engine_registration import move_engine, register_engine
from controlplane.services.free_ports import LOOPBACK, free_ports, is_free
from controlplane.services.policies import draft, publish_version
from controlplane.services.publication import record_change

ADMIN = "admin"
BLOCK_TOKENS = 512
ENGINES = 8
_PORTS_PER_ENGINE = 3
_RELEASE_S = 1.0
"""Engines of a program that was just killed hold their ports for a moment longer."""


def seed(secrets: FirstRunSecrets) -> None:
    """Make the first user, tenant, API key, region and policy unless they exist."""
    users = get_user_model().objects
    with transaction.atomic():
        if not users.filter(is_superuser=True).exists():
            users.create_superuser(username=ADMIN, password=secrets.admin_password)
        tenant, _ = Tenant.objects.get_or_create(slug=TENANT, defaults={"name": "Demo"})
        if not ApiKey.objects.filter(sha256=hash_api_key(secrets.api_key)).exists():
            adopt_api_key(tenant, "first run", secrets.api_key)
        Region.objects.get_or_create(slug="local", defaults={"name": "Local"})
        policy, new = Policy.objects.get_or_create(slug="default", defaults={"name": "Default"})
    if new or policy.live_version is None:
        publish_version(draft(policy, {}, author=None, message="The defaults of this program"), instead_of=None)


def seed_demo_pool(*, ports_from: int) -> list[Engine]:
    """Make the demo pool and its engines unless they exist, and return the engines the supervisor should start.

    Ports are remembered, so that engines keep their addresses over restarts; an engine one of whose
    ports now belongs to another program moves to free ones.
    """
    pool, new = Pool.objects.get_or_create(
        slug=POOL,
        defaults={
            "name": "Demo",
            "region": Region.objects.get(slug="local"),
            "served_model": SERVED_MODEL,
            "block_tokens": BLOCK_TOKENS,
            "policy": Policy.objects.get(slug="default"),
        },
    )
    if new:
        with transaction.atomic():
            record_change()
        _register_engines(pool, ports_from)
    engines = list(pool.engines.filter(supervised=True).order_by("name"))
    _move_from_taken_ports(engines, ports_from)
    return engines


def engine_ports(engine: Engine) -> tuple[int, int, int]:
    """Return the HTTP, KV-event and KV-replay ports of a supervised engine."""
    addresses = (engine.connect_url, engine.kv_events_endpoint, engine.kv_replay_endpoint)
    http, events, replay = (int(address.rsplit(":", 1)[1]) for address in addresses)
    return http, events, replay


def _register_engines(pool: Pool, ports_from: int) -> None:
    ports = free_ports(ENGINES * _PORTS_PER_ENGINE, start=ports_from)
    with transaction.atomic():
        for number in range(ENGINES):
            http, events, replay = ports[number * _PORTS_PER_ENGINE : (number + 1) * _PORTS_PER_ENGINE]
            name = f"e-{number + 1:02d}"
            register_engine(
                pool,
                name,
                _url("http", http),
                kv_events_endpoint=_url("tcp", events),
                kv_replay_endpoint=_url("tcp", replay),
                engine_id=name,
                supervised=True,
            )


def _move_from_taken_ports(engines: list[Engine], ports_from: int) -> None:
    ours = {port for engine in engines for port in engine_ports(engine)}
    deadline_s = time.monotonic() + _RELEASE_S
    for engine in engines:
        while not (free := all(is_free(port) for port in engine_ports(engine))) and time.monotonic() < deadline_s:
            time.sleep(0.05)
        if free:
            continue
        http, events, replay = free_ports(_PORTS_PER_ENGINE, start=ports_from, taken=ours)
        ours |= {http, events, replay}
        move_engine(
            engine,
            _url("http", http),
            kv_events_endpoint=_url("tcp", events),
            kv_replay_endpoint=_url("tcp", replay),
        )


def _url(scheme: str, port: int) -> str:
    return f"{scheme}://{LOOPBACK}:{port}"
