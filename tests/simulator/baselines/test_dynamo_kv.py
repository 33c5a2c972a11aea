from collections import Counter
from random import Random

import pytest

from routing.values import reasons
from simulator.baselines.other_routers import DynamoKv
from tests.routing.pools import BLOCK, busy, choice_of, chosen_by, pool, request

LONG = range(20)


def test_the_cost_counts_pending_new_and_active_blocks() -> None:
    router, asked = pool(size=1), request(1, LONG)
    router.blocks_stored("e-01", asked.keys[:5])
    busy(router, "e-01", tokens=3 * BLOCK)
    router.view.load.active_blocks[0] = 7
    # 15 blocks are new: weight × (3 + 15) + 7 + 15.
    assert choice_of(router, DynamoKv(), asked).candidates[0].cost == pytest.approx(18 + 22)
    assert choice_of(router, DynamoKv(weight=2.0), asked).candidates[0].cost == pytest.approx(36 + 22)


def test_a_matched_block_outweighs_almost_two_pending_blocks() -> None:
    router, asked = pool(size=2), request(1, LONG)
    router.blocks_stored("e-01", asked.keys[:10])
    busy(router, "e-01", tokens=19 * BLOCK)
    assert chosen_by(router, DynamoKv(), asked) == "e-01"
    busy(router, "e-01", tokens=21 * BLOCK)
    assert chosen_by(router, DynamoKv(), asked) == "e-02"


def test_temperature_spreads_the_choice_by_softmax() -> None:
    router, asked, rng = pool(size=2), request(1, LONG), Random(5)
    busy(router, "e-01", tokens=10 * BLOCK)
    placement = DynamoKv(temperature=1.0)
    drawn = Counter(placement.choose(asked, router.view, 0.0, rng).target for _ in range(4000))
    # Costs are scaled to 0 and 1, so the dearer engine has e⁻¹ ÷ (1 + e⁻¹) = 26.9 % of the choices.
    assert drawn[0] / 4000 == pytest.approx(0.269, abs=0.03)
    assert choice_of(router, placement, asked).reason == reasons.SOFTMAX
