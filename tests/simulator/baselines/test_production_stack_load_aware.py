import pytest

from simulator.baselines.production_stack_load_aware import ProductionStackLoadAware
from tests.routing.pools import busy, choice_of, chosen_by, pool, request


def test_a_load_twice_the_mean_costs_a_whole_cached_prompt() -> None:
    router, asked = pool(size=3), request(1, range(20))
    router.blocks_stored("e-01", asked.keys[:15])
    for engine_id, requests in (("e-01", 4), ("e-02", 1), ("e-03", 1)):
        busy(router, engine_id, requests=requests)
    # Mean 2: e-01 scores 0.75 − 1, the others 0 − (−0.5).
    best = choice_of(router, ProductionStackLoadAware(), asked).candidates[0]
    assert -best.cost == pytest.approx(0.5)
    assert best.engine_id != "e-01"
    assert chosen_by(router, ProductionStackLoadAware(beta=0.4), asked) == "e-01"
