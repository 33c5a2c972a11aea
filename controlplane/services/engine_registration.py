"""Adds engines to the topology, after checking that their addresses may be connected to."""

from __future__ import annotations

from urllib.parse import urlsplit

from django.conf import settings
from django.db import transaction

from controlplane.models import Engine, Pool
from controlplane.services.engine_url import CheckedUrl, EngineUrlRules, check_engine_url, check_kv_endpoint
from controlplane.services.publication import record_change


def engine_url_rules() -> EngineUrlRules:
    """Return what this installation allows, from its settings."""
    return EngineUrlRules(
        networks=settings.ENGINE_NETWORKS,
        allow_loopback=settings.ALLOW_LOOPBACK_ENGINES,
        own_services=frozenset(_own_services()),
    )


def register_engine(
    pool: Pool,
    name: str,
    url: str,
    *,
    kv_events_endpoint: str = "",
    kv_replay_endpoint: str = "",
    speed: float = 1.0,
    engine_id: str = "",
    supervised: bool = False,
) -> Engine:
    """Store and publish a new engine; raises RefusedUrlError, or IntegrityError for a name or URL taken."""
    rules = engine_url_rules()
    checked = check_engine_url(url, rules)
    identity = {"engine_id": engine_id} if engine_id else {}
    with transaction.atomic():
        engine = Engine.objects.create(
            pool=pool,
            name=name,
            url=checked.url,
            connect_url=checked.connect_url,
            kv_events_endpoint=_kv_endpoint(kv_events_endpoint, rules),
            kv_replay_endpoint=_kv_endpoint(kv_replay_endpoint, rules),
            speed=speed,
            supervised=supervised,
            **identity,
        )
        record_change()
    return engine


def move_engine(engine: Engine, url: str, *, kv_events_endpoint: str = "", kv_replay_endpoint: str = "") -> None:
    """Give the engine other addresses and publish them; raises RefusedUrlError."""
    rules = engine_url_rules()
    checked: CheckedUrl = check_engine_url(url, rules)
    with transaction.atomic():
        engine.url, engine.connect_url = checked.url, checked.connect_url
        engine.kv_events_endpoint = _kv_endpoint(kv_events_endpoint, rules)
        engine.kv_replay_endpoint = _kv_endpoint(kv_replay_endpoint, rules)
        engine.save(update_fields=["url", "connect_url", "kv_events_endpoint", "kv_replay_endpoint"])
        record_change()


def _kv_endpoint(endpoint: str, rules: EngineUrlRules) -> str:
    return check_kv_endpoint(endpoint, rules).connect_url if endpoint else ""


def _own_services() -> list[tuple[str, int]]:
    database = settings.DATABASES["default"]
    services = []
    if database.get("HOST"):
        services.append((str(database["HOST"]), int(database.get("PORT") or 5432)))
    redis = urlsplit(settings.REDIS_URL)
    if redis.hostname:
        services.append((redis.hostname, redis.port or 6379))
    return services
