"""Fills an empty installation so that it can be used at once. Every step is harmless when repeated."""

from __future__ import annotations

import time

from django.contrib.auth import get_user_model
from django.db import transaction

from controlplane.demo_names import POOL, SERVED_MODEL, TENANT
from controlplane.first_run_secrets import FirstRunSecrets
from controlplane.models import ApiKey, Engine, Policy, Pool, Region, Tenant
from controlplane.services import audit
from controlplane.services.actor import program
from controlplane.services.api_keys import adopt_api_key, hash_api_key
from controlplane.services.engine_registration import change_engine, register_engine
from controlplane.services.free_ports import LOOPBACK, free_ports, is_free
from controlplane.services.policies import create_policy, draft, publish_version
from controlplane.services.topology import create_pool, create_region, create_tenant

ADMIN = "admin"
ACTOR = program("first run")
REGION = "local"
POLICY = "default"
BLOCK_TOKENS = 512
ENGINES = 8
_PORTS_PER_ENGINE = 3
_RELEASE_S = 1.0
"""Engines of a program that was just killed hold their ports for a moment longer."""


def seed(secrets: FirstRunSecrets) -> None:
    """Make the first user, tenant, API key, region and policy unless they exist."""
    with transaction.atomic():
        _seed_admin(secrets.admin_password)
        tenant = Tenant.objects.filter(slug=TENANT).first() or create_tenant(TENANT, "Demo", actor=ACTOR)
        if not ApiKey.objects.filter(sha256=hash_api_key(secrets.api_key)).exists():
            adopt_api_key(tenant, "first run", secrets.api_key, actor=ACTOR)
        if not Region.objects.filter(slug=REGION).exists():
            create_region(REGION, "Local", actor=ACTOR)
        policy = Policy.objects.filter(slug=POLICY).first() or create_policy(POLICY, "Default", actor=ACTOR)
        if policy.live_version is None:
            first = draft(policy, {}, actor=ACTOR, message="The defaults of this program")
            publish_version(first, instead_of=None, actor=ACTOR)


def still_valid(secrets: FirstRunSecrets) -> tuple[str, str]:
    """Return the first run's password and API key, each empty where it opens nothing any more."""
    admin = get_user_model().objects.filter(username=ADMIN, is_active=True).first()
    password = secrets.admin_password if admin is not None and admin.check_password(secrets.admin_password) else ""
    key = ApiKey.objects.filter(sha256=hash_api_key(secrets.api_key), revoked_at=None)
    return password, secrets.api_key if key.exists() else ""


def seed_demo_pool(*, ports_from: int) -> list[Engine]:
    """Make the demo pool and its engines unless they exist, and return the engines the supervisor should start.

    Ports are remembered, so that engines keep their addresses over restarts; an engine one of whose
    ports now belongs to another program moves to free ones.
    """
    pool = Pool.objects.filter(slug=POOL).first()
    if pool is None:
        region, policy = Region.objects.get(slug=REGION), Policy.objects.get(slug=POLICY)
        pool = create_pool(POOL, "Demo", region, SERVED_MODEL, policy, actor=ACTOR, block_tokens=BLOCK_TOKENS)
        _register_engines(pool, ports_from)
    engines = list(pool.engines.filter(supervised=True).order_by("name"))
    _move_from_taken_ports(engines, ports_from)
    return engines


def engine_ports(engine: Engine) -> tuple[int, int, int]:
    """Return the HTTP, KV-event and KV-replay ports of a supervised engine."""
    addresses = (engine.connect_url, engine.kv_events_endpoint, engine.kv_replay_endpoint)
    http, events, replay = (int(address.rsplit(":", 1)[1]) for address in addresses)
    return http, events, replay


def _seed_admin(password: str) -> None:
    users = get_user_model().objects
    if not users.filter(is_superuser=True).exists():
        admin = users.create_superuser(username=ADMIN, password=password)
        after = {"username": admin.get_username(), "is_superuser": True}
        audit.record(ACTOR, "person.create", "person", admin.get_username(), after=after)


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
                actor=ACTOR,
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
        moved = {
            "url": _url("http", http),
            "kv_events_endpoint": _url("tcp", events),
            "kv_replay_endpoint": _url("tcp", replay),
        }
        change_engine(engine, moved, actor=ACTOR, why="Another program has taken a port of this engine")


def _url(scheme: str, port: int) -> str:
    return f"{scheme}://{LOOPBACK}:{port}"
