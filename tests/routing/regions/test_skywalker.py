from routing.regions.region_view import WAIT
from routing.regions.skywalker import SkyWalkerRegions
from routing.regions.skywalker_ch import SkyWalkerCh
from tests.routing.regions.views import engine, peer, view


def test_the_longest_match_among_engines_with_room_is_chosen() -> None:
    choice = SkyWalkerRegions().choose(
        view(engine(1, matched=600), engine(2, matched=700), engine(3, matched=900, room=False))
    )
    assert (choice.engine, choice.reason) == (1, "longest_match")


def test_a_prefix_that_all_requests_share_does_not_send_all_to_the_first_engine() -> None:
    choice = SkyWalkerRegions().choose(view(engine(1, matched=600, in_flight=9), engine(2, matched=600, in_flight=3)))
    assert choice.engine == 1


def test_a_match_below_half_of_the_prompt_is_ignored() -> None:
    choice = SkyWalkerRegions().choose(view(engine(1, matched=499, in_flight=9), engine(2, in_flight=3)))
    assert (choice.engine, choice.reason) == (1, "least_loaded")


def test_a_request_stays_while_any_local_engine_has_room() -> None:
    idle = peer("eu", matched=1000)
    assert SkyWalkerRegions().choose(view(engine(1, in_flight=40), peers=(idle,), load=40.0)).engine == 0


def test_a_full_region_forwards_to_the_longest_match_and_then_to_the_nearest() -> None:
    full = engine(1, matched=900, room=False)
    near, far = peer("eu", one_way=0.04), peer("asia", one_way=0.08)
    assert SkyWalkerRegions().choose(view(full, peers=(far, near))).peer == 1
    assert SkyWalkerRegions().choose(view(full, peers=(near, peer("asia", matched=10, one_way=0.08)))).peer == 1
    assert SkyWalkerRegions().choose(view(full, peers=(peer("eu", room=False),))) == WAIT


def test_a_session_keeps_its_engine_on_the_ring_and_skips_one_without_room() -> None:
    rule, all_free = SkyWalkerCh(), [engine(at) for at in range(4)]
    home = rule.choose(view(*all_free, key=77)).engine
    assert home is not None
    without = [engine(at, room=at != home) for at in range(4)]
    second = rule.choose(view(*without, key=77)).engine
    assert second not in {home, None}
    assert {rule.choose(view(*all_free, key=key)).engine for key in range(40)} == {0, 1, 2, 3}


def test_a_full_region_hashes_the_session_to_a_region_with_room() -> None:
    peers = (peer("eu", room=False), peer("asia"))
    assert SkyWalkerCh().choose(view(engine(1, room=False), peers=peers)).peer == 1
