"""Allowed engine addresses and engine keys: settings of the pool take precedence over those of the installation."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import override_settings

from controlplane.access.models.role_grant import RoleGrant
from controlplane.fleet.engine_registration import change_engine, register_engine
from controlplane.fleet.engine_url import RejectedUrlError
from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import Pool
from controlplane.fleet.preflight import job as preflight_job
from controlplane.fleet.preflight.lifecycle import preflight_of, register_for_preflight
from controlplane.fleet.topology import change_pool
from controlplane.platform.actor import CONSOLE, person, program
from controlplane.platform.field_problems import InvalidFieldsError
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.role import Role
from controlplane.platform.roles import NotAllowedError
from controlplane.publication.snapshot import build_snapshot
from gateway.base.engine_api_keys import FLEET_KEY
from gateway.bus.bus import Bus

pytestmark = pytest.mark.django_db(transaction=True)

ACTOR = program("tests")


def variable(engine: Engine) -> str:
    return next(item.key_variable for item in build_snapshot(at=0.0).engines if item.engine_id == engine.engine_id)


@override_settings(ENGINE_NETWORKS=())
def test_new_address_requires_an_audited_permission_of_an_admin(pool: Pool, bus: Bus) -> None:
    user = User.objects.create(username="operator")
    RoleGrant.objects.create(user=user, role=Role.OPERATOR, pool=pool)
    operator = person(user, via=CONSOLE)
    with pytest.raises(RejectedUrlError, match="an admin can allow its network in the pool's settings"):
        register_engine(pool, "a", "http://10.3.0.4:8000", actor=operator)
    with pytest.raises(NotAllowedError):
        change_pool(pool, {"engine_networks": "10.3.0.0/16"}, actor=operator)
    change_pool(pool, {"engine_networks": "10.3.0.0/16, fd00:1::/64"}, actor=ACTOR)
    engine = register_engine(pool, "a", "http://10.3.0.4:8000", actor=operator)
    assert AuditEvent.objects.filter(verb="pool.change", object_id=pool.slug).exists()
    for url in ("http://10.4.0.4:8000", "http://169.254.169.254", "http://[fd00:2::1]:8000"):
        with pytest.raises(RejectedUrlError):
            change_engine(engine, {"url": url}, actor=operator)


def test_networks_of_the_pool_replace_those_of_the_installation(pool: Pool, bus: Bus) -> None:
    change_pool(pool, {"engine_networks": "10.3.0.0/16"}, actor=ACTOR)
    with pytest.raises(RejectedUrlError):
        register_engine(pool, "a", "http://10.4.0.4:8000", actor=ACTOR)


def test_fleet_key_is_sent_only_within_the_networks_of_the_pool(pool: Pool, bus: Bus) -> None:
    engine = register_engine(pool, "a", "http://10.3.0.4:8000", actor=ACTOR)
    assert variable(engine) == FLEET_KEY
    change_pool(pool, {"engine_networks": "10.9.0.0/16"}, actor=ACTOR)
    assert variable(engine) == ""
    Engine.objects.filter(pk=engine.pk).update(connect_url="http://somewhere:8000")
    assert variable(engine) == ""


def test_pool_may_name_its_own_engine_key_and_no_other_secret(pool: Pool, bus: Bus) -> None:
    engine = register_engine(pool, "a", "http://10.3.0.4:8000", actor=ACTOR)
    change_pool(pool, {"engine_api_key_env": "HEADWAY_ENGINE_KEY_CHAT"}, actor=ACTOR)
    assert variable(engine) == "HEADWAY_ENGINE_KEY_CHAT"
    for name in ("SECRET_KEY", "HEADWAY_FLEET_SECRET", "HEADWAY_ENGINE_KEY_", "HEADWAY_ENGINE_KEY_a"):
        with pytest.raises(InvalidFieldsError):
            change_pool(pool, {"engine_api_key_env": name}, actor=ACTOR)


@pytest.mark.parametrize("text", ["10.3.0.0/99", "10.3.0.1/16", "private", "10.0.0.0/8,,10.1.0.0/16"])
def test_invalid_network_lists_are_rejected(pool: Pool, bus: Bus, text: str) -> None:
    with pytest.raises(InvalidFieldsError, match=r"10\.3\.0\.0/16"):
        change_pool(pool, {"engine_networks": text}, actor=ACTOR)


def test_preflight_sends_no_key_to_an_address_that_is_no_longer_allowed(pool: Pool, bus: Bus) -> None:
    seen: list[Any] = []

    class Thief(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers)
            self.send_error(401)

        def log_message(self, *_args: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Thief)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        with override_settings(ENGINE_API_KEY="the fleet's key"):
            with override_settings(ALLOW_LOOPBACK_ENGINES=True):
                engine = register_for_preflight(pool, "a", url, actor=ACTOR)
            with override_settings(ALLOW_LOOPBACK_ENGINES=False):
                preflight_job.preflight()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    preflight = preflight_of(engine)
    assert preflight is not None
    assert (preflight.state, seen) == ("failed", [])
