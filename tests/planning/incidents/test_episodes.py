"""One episode per trouble: one onset, one end, through restarts; and none in quiet hours."""

from __future__ import annotations

from copy import deepcopy

import msgspec
import pytest

from planning.incidents.causes import GATEWAY
from planning.incidents.episodes import IncidentMemory, advance
from planning.incidents.signs import FAILED, REJECTED, Outage, SignLog, missed, requests
from tests.planning.incidents.world import START, World, totals


def in_trouble(late: float = 0.4, seconds: int = 90) -> World:
    """Return a world whose requests have been late for `seconds`."""
    world = World(seed=5)
    world.run(300)
    world.pool().late = late
    world.run(seconds)
    return world


def test_an_episode_opens_once_and_closes_two_minutes_after_its_last_late_minute() -> None:
    world = in_trouble()
    episode = world.memory.episodes[0]
    assert abs(episode.onset - (START + 300)) <= 10
    world.pool().late = 0.02
    news = world.run(300)
    assert [item.kind for item in news] == ["closed"]
    ended = news[0].episode
    assert ended.onset == episode.onset
    assert START + 390 <= (ended.closed or 0.0) <= START + 390 + 60
    assert world.memory.episodes == ()


def test_a_pause_shorter_than_two_minutes_is_the_same_episode() -> None:
    world = in_trouble()
    for late in (0.02, 0.4, 0.02, 0.4):
        world.pool().late = late
        assert not {"opened", "closed"} & {item.kind for item in world.run(80)}
    assert len(world.memory.episodes) == 1


def test_hits_are_counted_to_the_request_by_tenant_and_length() -> None:
    world = World(seed=6)
    world.run(300)
    start = deepcopy(world.pool().tables())
    world.pool().late, world.pool().rejected = 0.4, 0.2
    world.run(90)
    world.pool().late = world.pool().rejected = 0.0
    world.run(240)
    hit, now = world.memory.closed[0].hit, world.pool().tables()
    begun = missed(totals(now)) - missed(totals(start))
    # The onset may be a few seconds off, in which some of the usual late requests ended.
    assert begun - 4 <= missed(totals(hit)) <= begun + 4
    for dimension in ("tenants", "keys", "classes", "lengths"):
        assert sum(map(requests, hit[dimension].values())) == requests(totals(hit))
    grown = now["tenants"]["acme"][REJECTED] - start["tenants"]["acme"][REJECTED]
    assert hit["tenants"]["acme"][REJECTED] == grown


def test_a_restart_continues_the_stored_episode_and_its_counts() -> None:
    world = in_trouble()
    hit = missed(totals(world.memory.episodes[0].hit))
    stored = msgspec.json.encode(world.memory)
    world.memory, world.log = msgspec.json.decode(stored, type=IncidentMemory), SignLog()
    news = world.run(120)
    assert [item.kind for item in news if item.kind == "opened"] == []
    assert len(world.memory.episodes) == 1
    assert missed(totals(world.memory.episodes[0].hit)) > hit + 200
    world.pool().late = 0.02
    assert [item.kind for item in world.run(300)] == ["closed"]


def test_nodes_that_fall_silent_together_or_on_a_starved_host_open_no_second_episode() -> None:
    world = World(seed=9)
    world.run(200)
    world.outages = tuple(Outage("node", name, world.now) for name in ("kv-1", "kv-2"))
    world.run(30)
    (alone,) = world.memory.episodes
    assert (len(alone.symptoms), alone.hit) == (2, {})
    starved = World(seed=9)
    starved.run(200)
    starved.away_per_s, starved.pool().late = 0.4, 0.4
    starved.run(60)
    starved.outages = world.outages
    starved.run(30)
    assert [item.causes[0].kind for item in starved.memory.episodes] == ["gateway_starved"]


def test_a_crash_on_a_starved_host_is_an_incident_of_its_own() -> None:
    world = World(seed=10)
    world.run(200)
    world.away_per_s, world.pool().late = 0.4, 0.4
    world.run(120)
    world.engine(1, state="lost", reason="connection refused")
    world.run(30)
    assert [(item.pool_id, item.causes[0].kind, item.certain) for item in world.memory.episodes] == [
        ("", "gateway_starved", True),
        ("pool-0", "engine_crashed", True),
    ]


def test_trouble_after_a_long_stop_is_another_episode() -> None:
    world = in_trouble()
    world.now, world.log = world.now + 1800, SignLog()
    news = world.run(120)
    assert [(item.kind, item.episode.closed is not None) for item in news] == [("closed", True), ("opened", False)]


def test_an_episode_that_a_person_closed_stays_closed_while_its_trouble_lasts() -> None:
    world = in_trouble()
    key = world.memory.episodes[0].key
    for _ in range(60):
        world.step()
        world.memory, news = advance(world.memory, world.log, [], dismissed=[key])
        assert news == []


def test_the_same_trouble_returns_to_its_episode_and_another_opens_one() -> None:
    world = World(seed=7)
    world.run(300)
    for number, restarts in ((1, 1), (2, 1), (1, 2)):
        world.engine(number, restarts=restarts)
        world.run(300)
    assert [item.kind for item in world.news if item.kind != "cause"] == [
        "opened",
        "closed",
        "opened",
        "closed",
        "returned",
        "closed",
    ]


def test_pools_have_episodes_of_their_own_and_a_drained_restart_has_none() -> None:
    world = World(seed=8, pools=2)
    world.run(200)
    world.engine(0, pool=0, state="draining")
    world.run(10)
    world.engine(0, pool=0, restarts=1, state="starting")
    assert world.run(60) == []
    world.pool(0).late = world.pool(1).late = 0.4
    assert {item.episode.pool_id for item in world.run(90)} == {"pool-0", "pool-1"}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_two_quiet_hours_with_bursts_and_little_traffic_open_nothing(seed: int) -> None:
    world = World(seed=seed, pools=2, rate=5.0, engines=3)
    world.pool(1).rate = 0.5

    def bursts(stepped: World) -> None:
        second = (stepped.now - START) % 600
        busy, pool = second < 10, stepped.pool()
        pool.tenants |= {"acme": 15.0 if busy else 5.0}
        pool.late, stepped.pool(1).late = 0.25 if busy else 0.03, 0.05
        stepped.away_per_s = 0.2 if 300 < second < 308 else 0.0

    world.on_step = bursts
    assert world.run(7200) == []


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("rate", [1.5, 6.0])
def test_prompts_of_very_different_lengths_open_nothing_in_two_quiet_hours(seed: int, rate: float) -> None:
    world = World(seed=seed, rate=rate, engines=3)
    world.pool().tail = 1.5
    world.hit["pool-0"] = 0.5
    assert world.run(7200, every=4) == []


def test_hits_that_fall_open_an_episode_that_hits_no_request_and_closes_when_they_return() -> None:
    world = World(seed=4)
    world.run(300)
    world.hit["pool-0"] = 0.1
    news = world.run(90)
    assert [item.kind for item in news] == ["opened", "cause"][: len(news)]
    (episode,) = world.memory.episodes
    assert [item.kind for item in episode.symptoms] == ["hits_fell"]
    assert episode.hit == {}
    world.hit["pool-0"] = 0.7
    assert [item.kind for item in world.run(240)] == ["closed"]


def test_hits_that_fall_while_caches_fill_open_an_episode() -> None:
    world = World(seed=4)
    world.hit["pool-0"] = 0.1
    world.run(70)
    world.hit["pool-0"] = 0.35
    world.run(100)
    world.hit["pool-0"] = 0.0
    assert [item.kind for item in world.run(45)][:1] == ["opened"]


def test_streams_that_broke_just_before_their_engine_was_lost_are_hit() -> None:
    world = World(seed=4)
    world.run(300)
    world.pool().failed = 0.1
    world.run(3)
    world.pool().failed = 0.0
    world.engine(1, state="lost", reason="connection refused")
    world.run(10)
    (episode,) = world.memory.episodes
    assert [item.kind for item in episode.symptoms] == ["engine_lost"]
    assert episode.hit["all"][""][FAILED] > 0
    assert episode.before["all"][""][FAILED] == 0
    assert episode.onset - 7.0 <= episode.counted_from <= episode.onset - 5.0


def test_caches_that_become_full_open_nothing() -> None:
    world = World(seed=4)
    world.removed_per_s["pool-0"] = 0.0
    world.run(300)
    # Each block of a prompt now pushes out another.
    world.removed_per_s["pool-0"] = 130.0
    assert world.run(600) == []


def test_a_lasting_fall_becomes_the_usual_share() -> None:
    world = World(seed=4)
    world.run(300)
    world.hit["pool-0"] = 0.1
    world.run(1500)
    assert [item.kind for item in world.news if item.kind != "cause"] == ["opened", "closed"]


def test_lateness_of_a_starting_fleet_is_no_incident_and_lasting_lateness_is_one() -> None:
    world = World(seed=8)
    world.away_per_s = 0.2
    world.run(20)
    world.away_per_s = 0.0
    assert world.run(120) == []
    world.away_per_s = 0.2
    news = world.run(60)
    assert [(item.kind, item.episode.causes[0].kind) for item in news if item.kind == "opened"] == [("opened", GATEWAY)]
