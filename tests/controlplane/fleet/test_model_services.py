"""Services are validated, published, and protected; what their providers cost is summed once."""

from __future__ import annotations

from typing import Any

import pytest
from pytest_django import Settings

from controlplane.fleet import topology
from controlplane.fleet.model_services import change_service, create_service, delete_service
from controlplane.fleet.models.model_service import ModelService, ProviderUsage
from controlplane.fleet.models.pool import Pool
from controlplane.platform.actor import program
from controlplane.platform.field_problems import InvalidFieldsError
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.recorded_change import InUseError
from controlplane.publication.snapshot import build_snapshot
from controlplane.request_log.store.segments import store
from gateway.contracts.request_batch import encode_batch, request_batch
from gateway.contracts.snapshot import ProviderEntry, ServiceEntry, decode_snapshot, encode_snapshot
from gateway.contracts.stored_decision import ServiceStory
from tests.controlplane.request_log.store.records import stored

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("bus")]
ACTOR = program("test")
PROVIDER = {
    "fallback": True,
    "provider_url": "https://api.example.com/v1",
    "provider_model": "big",
    "provider_key_env": "HEADWAY_PROVIDER_KEY_MAIN",
    "input_cost": 2.0,
    "output_cost": 6.0,
}


def create(pool: Pool, slug: str = "chat", **fields: Any) -> ModelService:
    return create_service(slug, actor=ACTOR, **{"pools": [pool.slug], **fields})


def problems(pool: Pool, **fields: Any) -> dict[str, str]:
    with pytest.raises(InvalidFieldsError) as caught:
        create(pool, **fields)
    return {problem.path: problem.message for problem in caught.value.problems}


def test_a_service_is_published_without_its_providers_key(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_PROVIDER_KEY_MAIN", "sk-secret")
    create(pool, aliases=["gpt-x", "org/model"], provider_region=pool.region.slug, **PROVIDER)
    shot = build_snapshot(at=0.0)
    entry = ProviderEntry(
        url="https://api.example.com/v1", model="big", key_variable="HEADWAY_PROVIDER_KEY_MAIN",
        region=pool.region.slug, input_cost=2.0, output_cost=6.0,
    )  # fmt: skip
    assert shot.services == (
        ServiceEntry(name="chat", aliases=("gpt-x", "org/model"), pools=(pool.slug,), provider=entry),
    )
    encoded = encode_snapshot(shot)
    assert b"sk-secret" not in encoded
    assert decode_snapshot(encoded).services == shot.services
    assert AuditEvent.objects.get(verb="service.create").after["pools"] == [pool.slug]


def test_the_provider_is_off_until_it_is_switched_on(pool: Pool) -> None:
    service = create(pool, **{**PROVIDER, "fallback": False})
    assert build_snapshot(at=0.0).services[0].provider is None
    change_service(service, {"fallback": True}, actor=ACTOR)
    assert build_snapshot(at=0.0).services[0].provider is not None
    delete_service(service, actor=ACTOR)
    assert build_snapshot(at=0.0).services == ()


def test_names_pools_and_providers_are_checked(pool: Pool) -> None:
    create(pool, aliases=["gpt-x"])
    assert problems(pool, slug="gpt-x") == {"aliases": "gpt-x is a name of chat."}
    assert problems(pool, slug="b", aliases=["chat"]) == {"aliases": "chat is a name of chat."}
    assert problems(pool, slug="b", aliases=["b"]) == {"aliases": "b appears twice."}
    assert problems(pool, slug="b", pools=[]) == {"pools": "Name at least one pool."}
    assert problems(pool, slug="b", pools=["gone"]) == {"pools": "Unknown: gone."}
    assert problems(pool, slug="b", pools=[pool.slug, pool.slug]) == {"pools": "A pool appears twice."}
    assert problems(pool, slug="b", fallback=True).keys() == {"provider_url", "provider_model"}
    assert problems(pool, slug="b", provider_region="mars").keys() == {"provider_region"}
    assert problems(pool, slug="b", provider_key_env="PATH").keys() == {"provider_key_env"}


@pytest.mark.parametrize(
    ("url", "loopback", "accepted"),
    [
        ("https://api.example.com/v1", False, True),
        ("http://api.example.com/v1", True, False),
        ("http://127.0.0.1:9000/v1", True, True),
        ("http://127.0.0.1:9000/v1", False, False),
        ("https://me:secret@api.example.com/v1", True, False),
        ("https://api.example.com/v1?key=1", True, False),
        ("file:///etc/passwd", True, False),
        ("https://api.example.com:x/v1", True, False),
    ],
)
def test_a_providers_address_is_https_or_of_this_host(
    pool: Pool, settings: Settings, url: str, loopback: bool, accepted: bool
) -> None:
    settings.ALLOW_LOOPBACK_ENGINES = loopback
    if accepted:
        create(pool, provider_url=url)
    else:
        assert problems(pool, provider_url=url).keys() == {"provider_url"}


def test_a_pool_or_region_in_use_cannot_be_deleted(pool: Pool) -> None:
    region = topology.create_region("mars", "Mars", actor=ACTOR)
    other = topology.create_pool("other", "Other", region, "m", pool.policy, actor=ACTOR)
    service = create(pool, provider_region="mars")
    with pytest.raises(InUseError, match="chat"):
        topology.delete_pool(pool, actor=ACTOR)
    topology.delete_pool(other, actor=ACTOR)
    with pytest.raises(InUseError, match="chat"):
        topology.delete_region(region, actor=ACTOR)
    change_service(service, {"provider_region": ""}, actor=ACTOR)
    topology.delete_region(region, actor=ACTOR)
    delete_service(service, actor=ACTOR)
    topology.delete_pool(pool, actor=ACTOR)


def test_costs_are_summed_per_day_and_a_repeated_batch_adds_nothing() -> None:
    story = ServiceStory("chat", "gpt-x", (("large", "no_engine"),), "api.example.com", "big", 200, "", 0.25)
    unknown, failed = ServiceStory("chat", "chat", (), "a", "b", 200), ServiceStory("chat", "chat", (), "a", "b", 500)
    day = 1_800_000_000.0
    decisions = [
        stored("a", day, service=story), stored("b", day, service=story), stored("c", day, service=unknown),
        stored("d", day, service=failed), stored("e", day + 86_400, service=story), stored("f", day),
    ]  # fmt: skip
    batch = encode_batch(request_batch("gateway-1", [], decisions))
    store([batch])
    store([batch])
    rows = ProviderUsage.objects.order_by("day").values_list("service", "requests", "cost")
    assert list(rows) == [("chat", 3, 0.5), ("chat", 1, 0.25)]
