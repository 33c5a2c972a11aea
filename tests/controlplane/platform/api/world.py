"""A small installation with two pools, people of every role, and keys; and a JSON client."""

from __future__ import annotations

import functools
import json
import secrets
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone
from msgspec import to_builtins

from controlplane.access.api_keys import create_api_key
from controlplane.access.group_grants import create_grant
from controlplane.access.models.role_grant import RoleGrant
from controlplane.advice.models.advice_proposal import AdviceProposal
from controlplane.automation.models.engine_action import EngineAction
from controlplane.fleet.engine_registration import register_engine
from controlplane.fleet.model_services import create_service
from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import Pool
from controlplane.fleet.models.region import Region
from controlplane.fleet.topology import create_pool, create_region, create_tenant
from controlplane.incidents.models.incident import Incident
from controlplane.kv_nodes.registration import report_node
from controlplane.notifications.changing import create as create_notification_object
from controlplane.notifications.models.notification import NotificationChannel, NotificationRoute, Silence
from controlplane.objectives.objective import create_objective
from controlplane.platform.actor import program
from controlplane.platform.models.api_key import ApiKey
from controlplane.platform.models.job_run import JobRun, JobState
from controlplane.platform.models.tenant import Tenant
from controlplane.platform.role import Role
from controlplane.policies.models.policy import Policy
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.policies.publish import create_policy, draft, publish_version
from controlplane.policies.scheduled_publishes import schedule_publish
from controlplane.request_log.models.recording import Origin, Recording
from controlplane.request_log.recordings.kept_traces import Written, recording_store, written
from controlplane.request_log.recordings.recorded_row import Resalting
from controlplane.request_log.recordings.statistics import plain
from controlplane.trials.canary.lifecycle import start_canary
from controlplane.trials.models.shadow import Shadow
from controlplane.trials.whatif.conditions import Conditions
from controlplane.trials.whatif.lifecycle import start_whatif
from controlplane.usage.budgets import create_budget, create_price
from planning.incidents.episodes import Episode
from tests.controlplane.request_log.recordings.traffic import START, record, rows
from tests.controlplane.request_log.store.records import keep, stored

ACTOR = program("test")
TRAFFIC = rows(60, pool="pool-a")


@dataclass
class World:
    """The objects of the world. `texts` holds the keys in clear text, and `sessions` those of people, by name."""

    region: Region
    pools: dict[str, Pool]
    policies: dict[str, Policy]
    versions: dict[str, PolicyVersion]
    engines: dict[str, Engine]
    tenant: Tenant
    keys: dict[str, ApiKey] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    people: dict[str, User] = field(default_factory=dict)
    sessions: dict[str, str] = field(default_factory=dict)

    def sign_in(self, client: Client, name: str) -> None:
        """Sign a person in: in the session of an earlier client if there is one, which costs no query."""
        if name not in self.sessions:
            client.force_login(self.people[name])
            self.sessions[name] = client.cookies[settings.SESSION_COOKIE_NAME].value
        client.cookies[settings.SESSION_COOKIE_NAME] = self.sessions[name]


def make_world() -> World:
    """Store the objects of the world."""
    region = create_region("here", "Here", actor=ACTOR)
    policies, versions, pools, engines = {}, {}, {}, {}
    for number, name in enumerate(("a", "b"), 1):
        policies[name] = create_policy(f"policy-{name}", name.upper(), actor=ACTOR)
        versions[name] = draft(policies[name], {}, actor=ACTOR, message="first")
        publish_version(versions[name], instead_of=None, actor=ACTOR)
        second = draft(policies[name], {"ttft_slo_s": 2.0}, actor=ACTOR, message="second")
        schedule_publish(second, timezone.now() + timedelta(days=2), instead_of=1, actor=ACTOR)
        pools[name] = create_pool(f"pool-{name}", name.upper(), region, f"model-{name}", policies[name], actor=ACTOR)
        url = f"http://10.0.{number}.1:8000"
        engines[name] = register_engine(pools[name], f"e-{name}", url, actor=ACTOR, engine_id=f"e-{name}")
    world = World(region, pools, policies, versions, engines, create_tenant("acme", "Acme", actor=ACTOR))
    for name in ("chat", "code"):
        create_service(name, aliases=[f"{name}-x"], pools=["pool-b"], actor=ACTOR)
    for pool in ("pool-a", "pool-b"):
        create_grant("operators", "operator", pool=pool, actor=ACTOR)
    for name in ("a", "b"):
        create_budget(slug=f"monthly-{name}", tenant=world.tenant, amount=1000.0, actor=ACTOR)
        create_price(slug=name, model=f"model-{name}", prompt=0.25, output=1.0, actor=ACTOR)
    _add_notifications()
    create_objective(slug="a", pool="pool-a", actor=ACTOR)
    create_objective(slug="b", target=95.0, actor=ACTOR)
    _add_recording(world)
    _add_shadow(world)
    fields = {"incarnation": 1, "address": "10.0.1.9:8470", "state": "serving"}
    report_node("kv-a", fields, {}, now=timezone.now(), actor=ACTOR)
    other = draft(policies["a"], {"placement": {"name": "round_robin"}}, actor=ACTOR, message="third")
    start_canary(other, actor=ACTOR)
    now = timezone.now()
    AdviceProposal.objects.create(
        pool=pools["a"], base=versions["a"], version=other, document=other.document, evidence={}, digest="d",
        evidence_until=now, created_at=now,
    )  # fmt: skip
    _add_people(world)
    _add_keys(world)
    episode = Episode(key="pool-a-1", pool_id="pool-a", onset=1.0, opened=2.0, last_bad=3.0, symptoms=())
    Incident.objects.create(
        key="pool-a-1", pool="pool-a", title="1 in 7 requests is late", onset=now, opened_at=now, last_bad_at=now,
        detail=to_builtins(episode),
    )  # fmt: skip
    JobRun.objects.create(job="probe", state=JobState.DONE, started_at=now, finished_at=now)
    for name, engine in engines.items():
        _ask_a_person(f"action-{name}", engine, now)
    keep(stored("decision-of-pool-a", tenant_id=world.tenant.slug))
    return world


def _add_notifications() -> None:
    for name in ("a", "b"):
        channel = create_notification_object(
            NotificationChannel, slug=name, name=name.upper(), address_env="HEADWAY_NOTIFY_MAIN", actor=ACTOR
        )
        fields: dict[str, Any] = {"channel": channel, "events": ["opened", "closed"]}
        create_notification_object(NotificationRoute, slug=name, actor=ACTOR, **fields)
        until = timezone.now().replace(microsecond=0) + timedelta(hours=1)
        create_notification_object(Silence, slug=name, reason="upgrade", until=until, actor=ACTOR)


def _add_recording(world: World) -> None:
    """Store two recordings of pool a, and a waiting what-if on one of them."""
    pool = world.pools["a"]
    record(TRAFFIC)
    recordings = [
        Recording.objects.create(
            key=secrets.token_hex(8), name="a minute", pool=pool, origin=Origin.WINDOW, requests=trace.rows,
            file_bytes=len(trace.packed), statistics=plain(trace.statistics),
        )
        for trace in recorded()
    ]  # fmt: skip
    for recording, trace in zip(recordings, recorded(), strict=True):
        recording_store().keep(recording, trace)
    pool.policy.refresh_from_db()
    draft = world.policies["a"].versions.get(number=2)
    start_whatif(recordings[0], draft, None, Conditions(seeds=1), actor=ACTOR)


def _add_shadow(world: World) -> None:
    """Start a shadow of a draft in pool a."""
    now = timezone.now()
    Shadow.objects.create(
        key="of-this-world", pool=world.pools["a"], draft=world.policies["a"].versions.get(number=2),
        base=world.versions["a"], created_at=now, until=now + timedelta(hours=1),
    )  # fmt: skip


@functools.cache
def recorded() -> tuple[Written, Written]:
    """Return the traces of the recordings in all worlds."""
    names = Resalting(b"salt of the test")
    one, other = (written(names.recorded(row, START) for row in TRAFFIC) for _ in range(2))
    return one, other


def _ask_a_person(key: str, engine: Engine, now: datetime) -> None:
    """Store an action that waits for a confirmation by an operator of the engine's pool."""
    EngineAction.objects.create(
        key=key,
        pool=engine.pool,
        kind="stop",
        engine=engine,
        engine_name=engine.name,
        state="sent",
        by="scaling",
        requested_at=now,
        next_try_at=now,
        deadline_at=now + timedelta(days=1),
    )


def _add_people(world: World) -> None:
    grants: dict[str, list[tuple[Role, Pool | None]]] = {
        "nobody": [],
        "viewer": [(Role.VIEWER, None)],
        "viewer_a": [(Role.VIEWER, world.pools["a"])],
        "operator_a": [(Role.OPERATOR, world.pools["a"])],
        "operator_a_viewer_b": [(Role.OPERATOR, world.pools["a"]), (Role.VIEWER, world.pools["b"])],
        "operator_b": [(Role.OPERATOR, world.pools["b"])],
        "operator": [(Role.OPERATOR, None)],
        "admin": [(Role.ADMIN, None)],
    }
    for name, roles in grants.items():
        world.people[name] = User.objects.create(username=name)
        for role, pool in roles:
            RoleGrant.objects.create(user=world.people[name], role=role, pool=pool)


def _add_keys(world: World) -> None:
    for name, scopes, role, pools in (
        ("traffic_key", ("infer", "route"), Role.ADMIN, ()),
        ("viewer_key", ("manage",), Role.VIEWER, ("*",)),
        ("viewer_a_key", ("manage",), Role.VIEWER, ("pool-a",)),
        ("operator_key", ("manage",), Role.OPERATOR, ("*",)),
        ("operator_a_key", ("manage",), Role.OPERATOR, ("pool-a",)),
        ("operator_b_key", ("manage",), Role.OPERATOR, ("pool-b",)),
        ("admin_key", ("manage",), Role.ADMIN, ()),
    ):
        key, text = create_api_key(world.tenant, name, actor=ACTOR, scopes=scopes, role=role, pools=pools)
        world.keys[name], world.texts[name] = key, text


class Api:
    """A client of one caller: a person by name (signed in), a key by name, or anonymous (None)."""

    def __init__(self, world: World, name: str | None = "admin") -> None:
        self.client = Client()
        self.headers: dict[str, str] = {}
        if name in world.people:
            world.sign_in(self.client, name)
        elif name is not None:
            self.headers["Authorization"] = f"Bearer {world.texts[name]}"

    def call(
        self, method: str, path: str, body: Any = None, media_type: str = "application/json", **headers: str
    ) -> HttpResponse:
        """Send one request. Keyword arguments are headers, with underscores instead of dashes."""
        sent = {**self.headers, **{name.replace("_", "-"): value for name, value in headers.items()}}
        content = {} if body is None else {"data": json.dumps(body), "content_type": media_type}
        address = path if path.startswith("/") else f"/api/v1/{path}"
        return self.client.generic(method, address, headers=sent, **content)

    def get(self, path: str, **headers: str) -> HttpResponse:
        """Send a GET."""
        return self.call("GET", path, **headers)

    def post(self, path: str, body: Any, **headers: str) -> HttpResponse:
        """Send a POST."""
        return self.call("POST", path, body, **headers)

    def change(self, method: str, path: str, body: Any = None) -> HttpResponse:
        """Change an object with the ETag of its stored revision."""
        return self.call(method, path, body, If_Match=self.get(path.partition("?")[0])["ETag"])
