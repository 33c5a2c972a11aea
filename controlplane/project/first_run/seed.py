"""Creates the first objects of an installation. Every step is idempotent."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import count, islice, zip_longest
from typing import Any

import msgspec
from django.contrib.auth import get_user_model
from django.db import transaction

from controlplane.access.api_keys import adopt_api_key
from controlplane.fleet.engine_registration import change_engine, register_engine
from controlplane.fleet.loopback_ports import (
    PORTS_PER_ENGINE,
    engine_addresses,
    engine_ports,
    engine_ports_in_use,
    free_ports,
    is_free,
)
from controlplane.fleet.models.engine import Engine, EngineRole
from controlplane.fleet.models.pool import Pool
from controlplane.fleet.models.region import Region
from controlplane.fleet.topology import create_pool, create_region, create_tenant
from controlplane.kv_nodes.models.kv_node import KvNode
from controlplane.platform import audit
from controlplane.platform.actor import program
from controlplane.platform.models.api_key import ApiKey, hash_api_key
from controlplane.platform.models.tenant import Tenant
from controlplane.policies.models.policy import Policy
from controlplane.policies.publish import DEFAULT as POLICY
from controlplane.policies.publish import create_policy, publish_first_version
from controlplane.project.first_run.demo_names import MORE_TENANTS, POOL, SERVED_MODEL, TENANT
from controlplane.project.first_run.secrets import FirstRunSecrets, new_api_key, new_password, new_secret

ADMIN = "admin"
ACTOR = program("first run")
REGION = "local"
BLOCK_TOKENS = 512
ENGINES = 8
DEMO_DOCUMENT = {
    "advisories": "gated",
    "automation": {"scaling": {"mode": "advise", "min_engines": 4, "max_engines": 12}},
}
"""Deviations of the demo's first policy from the defaults. The example chat's advisories are used, and scaling shows
plans that an operator may let it carry out.
"""
MAX_OF_ROLE = 16
"""Maximum number of demo engines with the prefill role, and with the decode role."""
DEMO_SETTINGS: dict[str, Any] = {
    "block_tokens": BLOCK_TOKENS,
    "actuator": "process",
    "actuator_settings": {"max_engines": 12},
}
_RELEASE_S = 1.0
"""Time after which a killed program's engines release their ports."""


def seed(secrets: FirstRunSecrets, *, demo: bool = False) -> None:
    """Create the first user, region, and policy unless they exist.

    `demo`: also create the demo's policy, tenant, and API key.
    """
    with transaction.atomic():
        _seed_admin(secrets.admin_password)
        if demo:
            _seed_tenant(TENANT, "first run", secrets.api_key)
            for slug, key in zip(MORE_TENANTS, secrets.more_api_keys, strict=False):
                _seed_tenant(slug, f"{slug} traffic", key)
        if not Region.objects.filter(slug=REGION).exists():
            create_region(REGION, "Local", actor=ACTOR)
        policy = Policy.objects.filter(slug=POLICY).first() or create_policy(POLICY, "Default", actor=ACTOR)
        if policy.live_version is None:
            publish_first_version(policy, actor=ACTOR, document=DEMO_DOCUMENT if demo else None)


def _seed_tenant(slug: str, name: str, api_key: str) -> None:
    tenant = Tenant.objects.filter(slug=slug).first() or create_tenant(slug, slug.capitalize(), actor=ACTOR)
    if not ApiKey.objects.filter(sha256=hash_api_key(api_key)).exists():
        adopt_api_key(tenant, name, api_key, actor=ACTOR, scopes=("infer", "route"))


def refilled(secrets: FirstRunSecrets, *, demo: bool) -> FirstRunSecrets:
    """Return the secrets with new values for those that `seed` needs and the file lacks."""
    if not secrets.admin_password and not get_user_model().objects.filter(is_superuser=True).exists():
        secrets = msgspec.structs.replace(secrets, admin_password=new_password())
    if demo and not secrets.api_key:
        secrets = msgspec.structs.replace(secrets, api_key=new_api_key())
    if demo and not secrets.more_api_keys:
        secrets = msgspec.structs.replace(secrets, more_api_keys=tuple(new_api_key() for _ in MORE_TENANTS))
    if demo and not secrets.kv_secret:
        secrets = msgspec.structs.replace(secrets, kv_secret=new_secret(), kv_api_key=new_api_key())
    return secrets


def without_used(secrets: FirstRunSecrets) -> FirstRunSecrets:
    """Return the secrets without a password that is in use, so that it is not stored in clear text."""
    used = get_user_model().objects.filter(username=ADMIN, last_login__isnull=False).exists()
    return msgspec.structs.replace(secrets, admin_password="") if used else secrets


def still_valid(secrets: FirstRunSecrets) -> FirstRunSecrets:
    """Return the secrets without a password or API key that is no longer valid."""
    admin = get_user_model().objects.filter(username=ADMIN, is_active=True).first()
    password = secrets.admin_password if admin is not None and admin.check_password(secrets.admin_password) else ""
    key = ApiKey.objects.filter(sha256=hash_api_key(secrets.api_key), revoked_at=None)
    api_key = secrets.api_key if key.exists() else ""
    return msgspec.structs.replace(secrets, admin_password=password, api_key=api_key)


def seed_demo_pool(*, ports_from: int, roles: Sequence[str] = ()) -> list[Engine]:
    """Create the demo pool and its engines unless they exist, and return the engines that the supervisor should start.

    Ports are stored, so that engines keep their addresses across restarts. If another program uses a port by now, the
    engine moves to free ports. `roles` are assigned in the order of engine names. A new pool has only these engines; in
    an existing pool, the other engines become mixed.
    """
    pool = Pool.objects.filter(slug=POOL).first()
    if pool is None:
        region, policy = Region.objects.get(slug=REGION), Policy.objects.get(slug=POLICY)
        pool = create_pool(POOL, "Demo", region, SERVED_MODEL, policy, actor=ACTOR, **DEMO_SETTINGS)
        _register_engines(pool, ports_from, len(roles) or ENGINES)
    if roles:
        _register_engines(pool, ports_from, len(roles) - pool.engines.filter(supervised=True).count())
        _give_roles(pool, roles)
    engines = list(pool.engines.filter(supervised=True).order_by("name"))
    move_from_taken_ports(engines, ports_from)
    return engines


def _seed_admin(password: str) -> None:
    users = get_user_model().objects
    if not users.filter(is_superuser=True).exists():
        admin = users.create_superuser(username=ADMIN, password=password)
        after = {"username": admin.get_username(), "is_superuser": True}
        audit.record(ACTOR, "person.create", "person", admin.get_username(), after=after)


def _give_roles(pool: Pool, roles: Sequence[str]) -> None:
    with transaction.atomic():
        engines = pool.engines.filter(supervised=True).order_by("name")
        for engine, role in zip_longest(engines, roles, fillvalue=EngineRole.MIXED.value):
            if isinstance(engine, Engine) and engine.role != role:
                change_engine(engine, {"role": role}, actor=ACTOR, why="Created at the start")


def _register_engines(pool: Pool, ports_from: int, more: int) -> None:
    """Register `more` engines under unused names; none if `more` is not positive."""
    used = set(pool.engines.values_list("name", flat=True))
    free = (name for number in count(1) if (name := f"e-{number:02d}") not in used)
    register_supervised(pool, list(islice(free, max(0, more))), ports_from)


def register_supervised(pool: Pool, names: Sequence[str], ports_from: int) -> None:
    """Register engines with these names and ids on free ports."""
    taken = engine_ports_in_use() | _node_ports()
    ports = iter(free_ports(len(names) * PORTS_PER_ENGINE, start=ports_from, taken=taken))
    with transaction.atomic():
        for name in names:
            addresses = engine_addresses(list(islice(ports, PORTS_PER_ENGINE)))
            register_engine(pool, name, **addresses, actor=ACTOR, engine_id=name, supervised=True)


def _node_ports() -> set[int]:
    """Return the ports of node managers, which may not be running yet."""
    addresses = KvNode.objects.values_list("address", "events_endpoint", "replay_endpoint")
    return {int(item.rsplit(":", 1)[1]) for row in addresses for item in row if item}


def move_from_taken_ports(engines: list[Engine], ports_from: int) -> None:
    """Move engines whose ports another program uses to free ports."""
    ours = {port for engine in engines for port in engine_ports(engine)} | _node_ports()
    deadline_s = time.monotonic() + _RELEASE_S
    for engine in engines:
        while not (free := all(is_free(port) for port in engine_ports(engine))) and time.monotonic() < deadline_s:
            time.sleep(0.05)
        if free:
            continue
        ports = free_ports(PORTS_PER_ENGINE, start=ports_from, taken=ours)
        ours |= set(ports)
        why = "Another program uses a port of this engine"
        change_engine(engine, engine_addresses(ports), actor=ACTOR, why=why)
