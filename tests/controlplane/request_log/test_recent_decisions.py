"""The console queries all gateways over the bus, and every web process receives the same decisions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from controlplane.request_log.recent_decisions import GatewayRecords
from gateway.bus.bus import Bus, InProcessBus
from gateway.bus.questions import MAX_WAITING
from gateway.bus.redis_bus import RedisBus
from gateway.contracts.recent_question import ASKED
from kvstore.keys.keyring import Keyring
from tests.controlplane.request_log.store.records import START, stored
from tests.private_redis import PrivateRedis, patient_bus
from tests.web.request_log.fake_decisions import FakeGateway

LONG_S = 60.0
ENGINE = stored().decision.engine_id
EARLIER, LATER = stored("earlier", START), stored("later", START + 1)
MakeBus = Callable[[], Bus]


@pytest.fixture(params=["in process", "over a server"])
def make_bus(request: pytest.FixtureRequest, bus_server: PrivateRedis) -> Iterator[MakeBus]:
    """Return a factory of bus connections, one per further process."""
    if request.param == "in process":
        bus = InProcessBus()
        yield lambda: bus
        return
    made: list[RedisBus] = []

    def make() -> Bus:
        made.append(patient_bus(bus_server.url, Keyring.of(request.node.name.encode())))
        return made[-1]

    yield make
    for item in made:
        item.close()


def test_two_web_processes_receive_both_gateways_newest_first(make_bus: MakeBus) -> None:
    FakeGateway(make_bus(), [EARLIER])
    FakeGateway(make_bus(), [LATER])
    for web in (GatewayRecords(make_bus(), LONG_S), GatewayRecords(make_bus(), LONG_S)):
        assert web.of_engine(ENGINE) == [LATER, EARLIER]
        assert web.of_engine("another") == []
        assert [web.get("earlier"), web.get("later"), web.get("none")] == [EARLIER, LATER, None]


def test_many_threads_of_one_web_process_each_get_their_response(make_bus: MakeBus) -> None:
    FakeGateway(make_bus(), [EARLIER, LATER])
    web = GatewayRecords(make_bus(), LONG_S)
    got: list[object] = []

    def ask(name: str) -> None:
        got.extend((name, web.get(name)) for _ in range(20))

    threads = [threading.Thread(target=ask, args=(name,)) for name in ("earlier", "later") * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 160
    assert all(answer == {"earlier": EARLIER, "later": LATER}[name] for name, answer in got)  # type: ignore[misc]


def test_without_a_gateway_the_query_does_not_wait(make_bus: MakeBus) -> None:
    web = GatewayRecords(make_bus(), LONG_S)
    assert (web.of_engine(ENGINE), web.get("earlier")) == (None, None)


def test_silent_gateway_does_not_block_other_responses(make_bus: MakeBus) -> None:
    make_bus().subscribe(ASKED, lambda *_: None)
    web = GatewayRecords(make_bus(), 0.1)
    assert web.of_engine(ENGINE) is None
    FakeGateway(make_bus(), [EARLIER])
    patient = GatewayRecords(make_bus(), 3.0)
    assert patient.get("earlier") == EARLIER
    assert patient.of_engine(ENGINE) == [EARLIER]


def test_unavailable_bus_gives_an_empty_response_at_once() -> None:
    bus = RedisBus("redis://127.0.0.1:1/0", Keyring.of(b"t"))
    web = GatewayRecords(bus, LONG_S)
    assert (web.of_engine(ENGINE), web.get("earlier")) == (None, None)
    bus.close()


def test_queries_beyond_the_limit_are_not_sent() -> None:
    bus, asked = InProcessBus(), 0
    web = GatewayRecords(bus, LONG_S)

    def ask_again(*_: object) -> None:
        nonlocal asked
        asked += 1
        web.get("deeper")

    bus.subscribe(ASKED, ask_again)
    web._questions.wait_s = 0.0
    assert web.get("earlier") is None
    assert asked == MAX_WAITING
