from routing.values import reasons
from simulator.baselines.aibrix_prefix import AibrixPrefix
from tests.routing.pools import busy, choice_of, pool, request


def test_the_longest_match_within_the_load_limit_is_chosen() -> None:
    router, asked = pool(size=8), request(1, range(20))
    router.blocks_stored("e-01", asked.keys)
    router.blocks_stored("e-02", asked.keys[:3])
    busy(router, "e-01", requests=9)
    # Mean 1.125, σ 2.98: 9 requests are above 1.125 + 2 × 2.98 = 7.08, so the shorter holder takes it.
    choice = choice_of(router, AibrixPrefix(), asked)
    assert (choice.target, choice.reason) == (1, reasons.LONG_MATCH)
    assert choice_of(router, AibrixPrefix(deviations=3.0), asked).target == 0


def test_uneven_loads_or_no_holder_lead_to_the_engine_with_fewest_requests() -> None:
    router, asked = pool(size=3), request(1, range(20))
    for engine_id, requests in (("e-01", 17), ("e-02", 0), ("e-03", 3)):
        busy(router, engine_id, requests=requests)
    router.blocks_stored("e-03", asked.keys)
    assert choice_of(router, AibrixPrefix(), asked).target == 1
    assert choice_of(router, AibrixPrefix(spread=17), asked).target == 2
    assert choice_of(router, AibrixPrefix(spread=17), request(2, [77])).reason == reasons.FEWEST_REQUESTS
