import pytest

from routing.regions.locality_offload import LocalityOffload
from routing.regions.region_view import RegionView
from tests.routing.regions.views import engine, peer, view


def chosen(asked: RegionView) -> tuple[str, int | None, int | None]:
    choice = LocalityOffload().choose(asked)
    return choice.reason, choice.engine, choice.peer


def test_lost_cache_and_load_are_weighed_in_seconds() -> None:
    """1,000 tokens save 0.547 s, which 13 requests in flight (0.52 s) do not outweigh and 14 (0.56 s) do."""
    holder = 1000
    assert chosen(view(engine(1, matched=holder, in_flight=13), engine(2)))[1] == 0
    assert chosen(view(engine(1, matched=holder, in_flight=14), engine(2)))[1] == 1


@pytest.mark.parametrize(("matched", "patience_s"), [(1000, 4.0), (274, 2.0), (0, 0.0)])
def test_a_request_waits_for_a_full_home_as_long_as_that_is_faster(matched: int, patience_s: float) -> None:
    engines = (engine(1, matched=matched, room=False), engine(2))
    if patience_s:
        assert chosen(view(*engines, waited=patience_s - 0.1))[0] == "wait"
    assert chosen(view(*engines, waited=patience_s + 0.1))[:2] == ("patience_over", 1)


def test_an_idler_region_gets_low_loss_requests_before_the_own_region_is_full() -> None:
    local = engine(1, matched=90, in_flight=10)
    idler, busier = peer("eu", load=4.0), peer("eu", load=4.1)
    assert chosen(view(local, peers=(idler,), load=10.0)) == ("early_offload", None, 0)
    assert chosen(view(local, peers=(busier,), load=10.0)) == ("least_cost", 0, None)
    assert chosen(view(engine(1, matched=500), peers=(idler,), load=10.0)) == ("least_cost", 0, None)


def test_the_margin_grows_with_distance() -> None:
    far = peer("asia", load=4.0, one_way=0.1)
    assert chosen(view(engine(1), peers=(far,), load=10.0))[0] == "least_cost"


def test_a_session_follows_its_cache_to_another_region_unless_that_is_much_busier() -> None:
    holder = peer("eu", matched=800, load=12.0)
    assert chosen(view(engine(1, matched=100), peers=(holder,), load=4.0)) == ("session_region", None, 0)
    assert chosen(view(engine(1, matched=100), peers=(holder,), load=1.0))[1:] == (0, None)


def test_a_full_region_forwards_low_loss_requests_immediately_and_others_later() -> None:
    full, cold = engine(1, matched=1000, room=False), peer("eu", load=9.0)
    assert chosen(view(engine(1, room=False), peers=(cold,)))[0] == "no_local_room"
    assert chosen(view(full, peers=(cold,), waited=3.9))[0] == "wait"
    assert chosen(view(full, peers=(cold,), waited=4.1)) == ("no_local_room", None, 0)
