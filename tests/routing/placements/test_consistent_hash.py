from routing.placements.consistent_hash import ConsistentHash
from routing.values import reasons
from tests.routing.pools import busy, choice_of, chosen_by, engines, pool, request


def test_equal_prefixes_go_to_one_engine_while_it_has_capacity() -> None:
    router = pool(size=8)
    homes = {chosen_by(router, ConsistentHash(), request(number, [1, 2, number])) for number in range(9)}
    assert len(homes) == 1


def test_an_engine_over_its_share_is_skipped_for_a_fixed_next_one() -> None:
    router, asked = pool(size=4), request(1, [1, 2])
    home = chosen_by(router, ConsistentHash(), asked)
    # Mean with this request (7 + 1) ÷ 4 = 2, so the share is ⌈1.25 × 2⌉ = 3.
    busy(router, home, requests=7)
    second = choice_of(router, ConsistentHash(), asked)
    assert second.reason == reasons.RING_FULL
    assert second.candidates[0].engine_id != home
    assert chosen_by(router, ConsistentHash(), request(2, [1, 2, 9])) == second.candidates[0].engine_id


def test_a_removed_engine_moves_only_its_own_prompts() -> None:
    router = pool(size=8)
    asked = [request(number, [number, 1000 + number]) for number in range(300)]
    before = [chosen_by(router, ConsistentHash(), item) for item in asked]
    router.set_engines([engine for engine in engines(8) if engine.engine_id != "e-03"], 0.0)
    after = [chosen_by(router, ConsistentHash(), item) for item in asked]
    moved = {was for was, home in zip(before, after, strict=True) if was != home}
    assert moved == {"e-03"}
