from tests.routing.pools import engine_of, pool, request


def test_the_least_loaded_engine_is_filled_first() -> None:
    router = pool("least_loaded", size=2)
    first = engine_of(router.place(request(1, range(20)), 0.0, hold=False))
    others = [engine_of(router.place(request(number, [number]), 0.0, hold=False)) for number in range(2, 12)]
    assert first not in others


def test_every_engine_gets_its_turn() -> None:
    router = pool("round_robin", size=3)
    chosen = [engine_of(router.place(request(number, [number]), 0.0, hold=False)) for number in range(6)]
    assert chosen == ["e-01", "e-02", "e-03"] * 2
