from simulator.baselines.sglang_cache_aware import SglangCacheAware
from simulator.baselines.vllm_cache_aware import VllmCacheAware
from tests.routing.pools import busy, chosen_by, pool, request


def test_loads_are_balanced_only_if_they_differ_by_more_than_a_tenth() -> None:
    router, asked = pool(size=2), request(1, range(20))
    router.blocks_stored("e-01", asked.keys)
    busy(router, "e-01", requests=433)
    busy(router, "e-02", requests=400)
    assert chosen_by(router, VllmCacheAware(), asked) == "e-01"
    assert chosen_by(router, SglangCacheAware(), asked) == "e-02"
