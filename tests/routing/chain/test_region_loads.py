"""The router's report of its engines to region rules."""

from __future__ import annotations

from routing.chain.region_loads import engine_loads, pool_load, pool_load_report
from routing.values.observation import FirstToken
from tests.routing.pools import BLOCK, pool, request

LONG = range(20)


def test_the_report_has_room_match_and_work_of_each_engine() -> None:
    router = pool(size=2)
    asked = request(1, LONG)
    router.blocks_stored("e-01", asked.keys[:10])
    loads = {engine_load.engine_id: engine_load for engine_load in engine_loads(router, asked, 0.0)}
    assert loads["e-01"].matched_tokens == 10 * BLOCK
    assert loads["e-02"].matched_tokens == 0
    assert all(load.has_room and load.in_flight == 0 for load in loads.values())


def test_a_prefill_occupies_room_until_its_first_token() -> None:
    router = pool(size=1)
    router.place(request(1, LONG), 0.0)
    assert not engine_loads(router, request(2, LONG), 0.0)[0].has_room
    load = pool_load(router, 0.0)
    assert (load.engines, load.available, load.queued, load.in_flight) == (1, 0, 0, 1)
    router.place(request(2, range(100, 120)), 0.1)
    assert pool_load(router, 0.1).queued == 1
    router.observe(FirstToken("request-00000001"), 0.8)
    router.observe(FirstToken("request-00000002"), 1.8)
    assert pool_load(router, 1.8).available == 1


def test_the_report_of_the_deciding_gateway_replaces_the_local_account() -> None:
    owner, other = pool(size=2), pool(size=2)
    owner.place(request(1, LONG), 0.0)
    report = pool_load_report(owner, 0.0)
    asked = request(2, LONG)
    other.blocks_stored("e-02", asked.keys[:10])
    assert [engine_load.matched_tokens for engine_load in engine_loads(other, asked, 0.0, report)] == [0, 10 * BLOCK]
    loads = {
        engine_load.engine_id: (engine_load.in_flight, engine_load.has_room)
        for engine_load in engine_loads(other, asked, 0.0, report)
    }
    assert loads == {engine.engine_id: (engine.in_flight, engine.has_room) for engine in report.engines}
    assert sorted(loads.values()) == [(0, True), (1, False)]
    assert pool_load(other, 0.0, report) == pool_load(owner, 0.0) != pool_load(other, 0.0)


def test_reading_the_report_changes_nothing() -> None:
    router = pool(size=2)
    router.place(request(1, LONG), 0.0)
    first = engine_loads(router, request(2, LONG), 0.1)
    assert engine_loads(router, request(2, LONG), 0.1) == first
    router.check()
