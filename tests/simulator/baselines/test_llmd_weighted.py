import pytest

from simulator.baselines.llmd_weighted import LlmdWeighted
from tests.routing.pools import busy, choice_of, chosen_by, pool, request


def test_the_score_sums_prefix_queue_and_free_cache() -> None:
    router, asked = pool(size=2), request(1, range(20))
    router.blocks_stored("e-01", asked.keys[:10])
    busy(router, "e-01", requests=1)
    busy(router, "e-02", requests=5)
    router.view.load.active_blocks[0] = 500
    best = choice_of(router, LlmdWeighted(kv_blocks=1000), asked).candidates[0]
    # 3 × 0.5 of the prompt + 2 × 1 for the shortest queue + 2 × 0.5 of the cache free.
    assert (best.engine_id, -best.cost) == ("e-01", pytest.approx(4.5))


def test_a_long_queue_outweighs_a_hit() -> None:
    router, asked = pool(size=2), request(1, range(20))
    router.blocks_stored("e-01", asked.keys[:12])
    busy(router, "e-01", requests=3)
    assert chosen_by(router, LlmdWeighted(), asked) == "e-02"
    assert chosen_by(router, LlmdWeighted(queue_weight=1.0), asked) == "e-01"
