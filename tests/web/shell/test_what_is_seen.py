"""Every page, JSON response, and frame for people of one pool or none: other pools do not appear."""

from __future__ import annotations

import time

import msgspec
import pytest

from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import Pool
from controlplane.policies.models.policy import Policy
from gateway.bus.bus import Bus
from gateway.contracts.fleet_sample import FleetSample
from tests.controlplane.conftest import bus
from tests.controlplane.platform.api.world import World, make_world
from tests.page_text import page_text
from tests.web.fake_fleet import FakeFleet
from tests.web.live.frame_reader import read_frame
from tests.web.live.socket_client import SocketClient
from tests.web.shell.test_page_roles import address, patterns, signed_in
from web.live.consumers import NO_ROLE
from web.live.feed import FleetFeed
from web.shell.no_role import is_own

__all__ = ["bus"]

NAMES = {"a": "zebra", "b": "wildebeest"}
"""A word in every name of the pool, found nowhere else in a page."""


def fleet_of_both(number: int, at: float) -> FleetSample:
    """Return a sample of both pools in which one engine of each is unhealthy."""
    sample = FakeFleet(engines=4, pools=2, events=False).sample_at(float(number), at)
    of = {"pool-0": ("pool-a", NAMES["a"]), "pool-1": ("pool-b", NAMES["b"])}
    engines, pools = [], []
    for row, engine in enumerate(sample.engines):
        slug, word = of[engine.pool_id]
        words = {"engine_id": f"e-{word}-{row}", "name": f"{word}-{row}", "reason": f"{word} is slow"}
        engines.append(msgspec.structs.replace(engine, pool_id=slug, state="degraded", **words))
    for pool in sample.pools:
        slug, word = of[pool.pool_id]
        pools.append(msgspec.structs.replace(pool, pool_id=slug, name=word, region=word, served_model=word))
    return msgspec.structs.replace(sample, engines=tuple(engines), pools=tuple(pools))


@pytest.fixture
def world(db: None, bus: Bus, feed: FleetFeed) -> World:
    """Return two pools with names that no other text contains, and a feed that has received both."""
    world = make_world()
    for pool, word in NAMES.items():
        Pool.objects.filter(pk=world.pools[pool].pk).update(name=word, served_model=word)
        Engine.objects.filter(pool=world.pools[pool]).update(name=f"{word}-0")
        Policy.objects.filter(pk=world.policies[pool].pk).update(name=word)
    now = time.time()
    for number in range(6):
        feed.take(fleet_of_both(number, now - 20))
    return world


def everywhere(world: World) -> list[tuple[str, str]]:
    """Return name and address of every page, form, and JSON endpoint of the console for objects of pool a."""
    ranged = ("fleet-history", "automation-timeline")
    return [
        (str(pattern.name), address(pattern, world) + ("?range=5m" if pattern.name in ranged else ""))
        for pattern in patterns()
    ]


@pytest.mark.django_db
@pytest.mark.parametrize(("who", "other"), [("operator_b", "a"), ("viewer_a", "b")])
def test_people_of_one_pool_see_nothing_of_another(world: World, who: str, other: str) -> None:
    client, foreign = signed_in(world, who), (NAMES[other], f"pool-{other}", f"policy-{other}", f'"e-{other}"')
    leaks = []
    for name, path in everywhere(world):
        # Text typed into the address is the person's own, and appears in links such as the one to another theme.
        body = client.get(path).content.decode(errors="replace").replace(path.partition("?")[0], "")
        leaks += [(name, word) for word in foreign if word in body]
    assert not leaks


@pytest.mark.django_db
def test_people_without_a_role_see_only_whom_to_ask(world: World) -> None:
    client, wrong = signed_in(world, "nobody"), []
    for name, path in everywhere(world):
        answer = client.get(path)
        body = answer.content.decode(errors="replace")
        allowed = is_own(name) or (answer.status_code == 403 and "Ask an admin" in body and "admin." in body)
        if not allowed or any(word in body for word in NAMES.values()):
            wrong.append((name, answer.status_code))
    assert not wrong


@pytest.mark.django_db
@pytest.mark.parametrize("who", ["viewer", "operator_a_viewer_b", "admin"])
def test_people_with_roles_in_both_pools_see_both(world: World, who: str) -> None:
    client = signed_in(world, who)
    assert b"wildebeest" in client.get("/engines").content
    past = client.get("/fleet/history?range=5m").content
    assert b"wildebeest" in past
    assert b"zebra" in past


@pytest.mark.django_db
def test_fleet_verdict_covers_only_visible_pools(world: World, feed: FleetFeed) -> None:
    page = page_text(signed_in(world, "operator_b").get("/"))
    assert "wildebeest-3 is degraded" in page


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("who", "words"),
    [
        ("viewer", {"zebra", "wildebeest"}),
        ("viewer_a", {"zebra"}),
        ("operator_b", {"wildebeest"}),
        ("operator_a_viewer_b", {"zebra", "wildebeest"}),
    ],
)
async def test_frames_hold_only_pools_visible_to_the_viewer(
    who: str, words: set[str], world: World, feed: FleetFeed
) -> None:
    client = SocketClient(world.people[who])
    assert await client.connect()
    keyframe = await client.receive()
    feed.take(fleet_of_both(8, time.time() - 20))
    column = await client.receive()
    engines, pools = len(read_frame(keyframe).head["engines"]), len(read_frame(keyframe).head["pools"])
    assert pools == len(words)
    assert read_frame(column, engines, pools).head["kind"] == "column"
    for word in NAMES.values():
        assert (word.encode() in keyframe + column) == (word in words)
    await client.disconnect()


@pytest.mark.django_db(transaction=True)
async def test_people_without_a_role_get_no_frame(world: World) -> None:
    client = SocketClient(world.people["nobody"])
    await client.connect()
    assert (await client.receive_output())["code"] == NO_ROLE
    await client.wait()
