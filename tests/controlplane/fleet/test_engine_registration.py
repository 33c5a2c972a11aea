"""Engines are added to the topology after a check of their address."""

from __future__ import annotations

import pytest
from django.test import override_settings

from controlplane.fleet.engine_registration import change_engine, engine_url_rules, register_engine
from controlplane.fleet.engine_url import RejectedUrlError
from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import Pool
from controlplane.platform.actor import program
from controlplane.platform.field_problems import InvalidFieldsError
from controlplane.publication.snapshot import build_snapshot
from gateway.bus.bus import Bus

ACTOR = program("test")
pytestmark = pytest.mark.django_db


def test_registered_engine_is_in_the_next_snapshot(pool: Pool, bus: Bus) -> None:
    before = build_snapshot(at=0.0).version
    register_engine(
        pool, "a", "http://10.1.2.3:8000/", kv_events_endpoint="tcp://10.1.2.3:5557", speed=2.0, actor=ACTOR
    )
    snapshot = build_snapshot(at=0.0)
    (entry,) = snapshot.engines
    assert snapshot.version == before + 1
    assert (entry.url, entry.kv_events_endpoint, entry.speed) == ("http://10.1.2.3:8000", "tcp://10.1.2.3:5557", 2.0)


@pytest.mark.parametrize(
    ("url", "kv_events_endpoint"),
    [("http://169.254.169.254", ""), ("http://10.1.2.3:8000", "tcp://169.254.169.254:80")],
)
def test_rejected_address_leaves_no_engine(pool: Pool, bus: Bus, url: str, kv_events_endpoint: str) -> None:
    with pytest.raises(RejectedUrlError):
        register_engine(pool, "a", url, kv_events_endpoint=kv_events_endpoint, actor=ACTOR)
    assert not Engine.objects.exists()


def test_address_belongs_to_one_engine(pool: Pool, bus: Bus) -> None:
    register_engine(pool, "a", "http://10.1.2.3:8000", actor=ACTOR)
    with pytest.raises(InvalidFieldsError, match="url: Engine with this Url already exists"):
        register_engine(pool, "b", "http://10.1.2.3:8000/", actor=ACTOR)


def test_engine_with_a_new_address_keeps_its_id(pool: Pool, bus: Bus) -> None:
    engine = register_engine(pool, "a", "http://10.1.2.3:8000", actor=ACTOR)
    change_engine(engine, {"url": "http://10.1.2.4:8000"}, actor=ACTOR)
    (entry,) = build_snapshot(at=0.0).engines
    assert (entry.engine_id, entry.url) == (engine.engine_id, "http://10.1.2.4:8000")


def test_change_to_a_rejected_address_changes_nothing(pool: Pool, bus: Bus) -> None:
    engine = register_engine(pool, "a", "http://10.1.2.3:8000", actor=ACTOR)
    with pytest.raises(RejectedUrlError):
        change_engine(engine, {"url": "http://[fe80::1]:8000"}, actor=ACTOR)
    engine.refresh_from_db()
    assert engine.url == "http://10.1.2.3:8000"


@pytest.mark.filterwarnings("ignore:Overriding setting DATABASES")
def test_url_rules_know_our_own_database_and_redis() -> None:
    database = {"ENGINE": "django.db.backends.postgresql", "HOST": "db.internal", "PORT": "", "NAME": "x"}
    with override_settings(DATABASES={"default": database}, REDIS_URL="redis://:secret@cache.internal/0"):
        assert engine_url_rules().own_services == {("db.internal", 5432), ("cache.internal", 6379)}
