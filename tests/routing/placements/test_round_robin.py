from tests.routing.pools import engine_of, pool, request


def test_every_engine_gets_its_turn() -> None:
    router = pool("round_robin", size=3)
    chosen = [engine_of(router.place(request(number, [number]), 0.0, hold=False)) for number in range(6)]
    assert chosen == ["e-01", "e-02", "e-03"] * 2
