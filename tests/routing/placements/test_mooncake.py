import pytest

from routing.placements.mooncake import Mooncake
from simulator.baselines.mooncake_transfers import MooncakeTransfers
from simulator.baselines.textbook_rules import MinTtft
from tests.routing import pools
from tests.routing.pools import busy, choice_of, request

LONG = range(20)


@pytest.mark.parametrize("held", [0, 5, 20])
def test_without_transfers_mooncake_chooses_like_min_ttft_and_plans_no_fetch(held: int) -> None:
    router, asked = pools.pool(size=3), request(1, LONG)
    router.blocks_stored("e-01", asked.keys)
    router.blocks_stored("e-02", asked.keys[:held])
    busy(router, "e-01", wait_s=0.7)
    busy(router, "e-02", wait_s=0.2)
    assert choice_of(router, Mooncake(), asked) == choice_of(router, MinTtft(), asked)
    router.view.sending_until = {}
    assert choice_of(router, Mooncake(), asked) == choice_of(router, MinTtft(), asked)
    if not held:
        assert choice_of(router, MooncakeTransfers(), asked).fetch is not None
