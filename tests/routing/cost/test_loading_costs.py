"""Loading costs are learned from prefills that included a load: the time beyond computing."""

from __future__ import annotations

from random import Random

import pytest

from kvstore.index.lower_tiers import CPU, DISK
from routing.cost.cost_model import DecodeCost, PrefillCost
from routing.cost.cost_observer import FIRST, LATER, LOADED, TAKEN, CostObserver
from routing.cost.loading_costs import ADAPTER_S, SHARE_OF_COMPUTE, LoadingCosts, LoadRate

COST = PrefillCost()


class Served:
    """An observer of one engine per kind that serves requests one after another."""

    def __init__(self) -> None:
        self.costs = LoadingCosts()
        self.seen = CostObserver(COST, DecodeCost(), self.costs)
        self.seen.set_engines({"a": ("fast", 1.0), "a2": ("fast", 1.0), "b": ("slow", 1.0)}, {})
        self.now, self._number = 0.0, 0
        for engine in ("a", "b") * 10:
            self.serve(5000, 0, 0.0, engine=engine)

    def serve(
        self,
        prompt: int,
        hit: int,
        extra_s: float,
        *,
        engine: str = "a",
        tiers: dict[str, int] | None = None,
        adapter: str = "",
        cached: int | None = None,
        computed_hit: int | None = None,
    ) -> None:
        """Serve a request whose prefill takes `extra_s` longer than computing the tokens outside `computed_hit`."""
        name, self._number = f"r{self._number}", self._number + 1
        self.seen.dispatched(name, engine, prompt, hit, self.now, tiers, adapter)
        self.now += COST.seconds(prompt, hit if computed_hit is None else computed_hit) + extra_s
        self.seen.first_token(name, self.now)
        self.seen.completed(name, self.now + 1.0, cached_tokens=cached, output_tokens=1)
        self.seen.check()
        self.now += 2.0


def test_the_cost_of_a_tier_is_learned_per_engine_kind() -> None:
    served, rng = Served(), Random(3)
    assert served.costs.token_s("a", CPU) is None
    for _ in range(60):
        prompt = rng.randint(4000, 12_000)
        served.serve(prompt, 0, 0.0)
        loaded = rng.randint(1000, prompt - 1)
        served.serve(prompt, loaded, loaded * 30e-6 + 0.002, tiers={CPU: loaded}, cached=loaded)
    assert served.costs.tier_s("a2", CPU, 5000, COST.per_token_s) == pytest.approx(0.152, rel=0.1)
    assert served.costs.token_s("b", CPU) is None
    prior = 5000 * SHARE_OF_COMPUTE[CPU] * COST.per_token_s
    assert served.costs.tier_s("b", CPU, 5000, COST.per_token_s) == pytest.approx(prior)
    assert (served.seen.samples[LOADED], served.seen.samples[TAKEN]) == (60, 80)
    assert served.seen.fitted()["fast"].error < 0.02, "loads teach the cost of computing nothing"


def test_two_tiers_share_the_time_in_proportion_to_their_predicted_costs() -> None:
    served = Served()
    for _ in range(60):
        served.serve(9000, 6000, 0.0, engine="b")
        served.serve(9000, 8000, 0.1, engine="b", tiers={CPU: 6000, DISK: 2000})
    costs = served.costs
    both = sum(costs.tier_s("b", tier, tokens, COST.per_token_s) for tier, tokens in ((CPU, 6000), (DISK, 2000)))
    assert both == pytest.approx(0.1, rel=0.05)
    assert (costs.token_s("b", DISK) or 0.0) > (costs.token_s("b", CPU) or 1.0)


def test_a_tier_without_the_predicted_blocks_costs_their_computation() -> None:
    served = Served()
    for _ in range(60):
        served.serve(8000, 6000, 0.0, tiers={CPU: 6000}, cached=0, computed_hit=0)
    instead_s = COST.seconds(8000, 0) - COST.seconds(8000, 6000)
    assert served.costs.tier_s("a", CPU, 6000, COST.per_token_s) == pytest.approx(instead_s, rel=0.1)


def test_a_wrong_prediction_of_memory_hits_is_not_charged_to_the_tier() -> None:
    served = Served()
    for _ in range(60):
        # It had none of 4,000 tokens in memory, and all of 2,000 in the tier.
        served.serve(8000, 6000, 0.02, tiers={CPU: 2000}, cached=0, computed_hit=2000)
    assert served.costs.tier_s("a", CPU, 2000, COST.per_token_s) == pytest.approx(0.02, rel=0.15)


def test_free_loads_lower_the_rate() -> None:
    served = Served()
    for _ in range(60):
        served.serve(8000, 6000, -0.001, tiers={DISK: 6000})
    assert served.costs.tier_s("a", DISK, 6000, COST.per_token_s) < 0.001


def test_prefills_without_a_comparable_ordinary_prefill_teach_nothing() -> None:
    served = Served()
    served.seen.set_engines({"c": ("new", 1.0)}, {})
    served.serve(5000, 4000, 1.0, engine="c", tiers={CPU: 4000})
    served.serve(5000, 0, 1.0, engine="c", adapter=FIRST)
    assert (served.costs.token_s("c", CPU), served.costs.learned_adapter_s("c")) == (None, None)
    for _ in range(20):
        served.serve(5000, 0, 0.0, engine="c", adapter=LATER)
    assert served.seen.fitted()["new"].samples == 20, "with an adapter that is loaded, a prefill is an ordinary one"
    served.serve(5000, 4000, 1.0, engine="c", tiers={CPU: 4000})
    assert served.costs.token_s("c", CPU) is not None


def test_an_adapters_cost_is_the_extra_time_of_first_requests() -> None:
    served = Served()
    assert served.costs.adapter_s("a") == ADAPTER_S
    for _ in range(30):
        served.serve(2000, 0, 0.45, adapter=FIRST)
        served.serve(2000, 0, 0.05, adapter=LATER)
    assert served.costs.adapter_s("a") == pytest.approx(0.4, rel=0.1)
    assert served.costs.learned_adapter_s("b") is None
    served.costs.loaded("b", {}, True, 0.1, COST.per_token_s, served.now + 10_000.0)
    assert served.costs.adapter_s("a") == pytest.approx(ADAPTER_S), "what no request confirmed for long is forgotten"


def learned(size: int, true_latency_s: float, true_s_per_byte: float, *, loads: int = 200) -> LoadRate:
    rate = LoadRate(0.002, 1e-9)
    for _ in range(loads):
        rate.observe(size, true_latency_s + size * true_s_per_byte)
    return rate


@pytest.mark.parametrize("size", [4096, 1 << 20, 64 << 20])
@pytest.mark.parametrize(("latency_s", "s_per_byte"), [(0.0005, 1e-10), (0.05, 1e-8)])
def test_a_link_with_constant_load_times_is_predicted_to_keep_them(
    size: int, latency_s: float, s_per_byte: float
) -> None:
    rate = learned(size, latency_s, s_per_byte)
    assert rate.seconds(size) == pytest.approx(latency_s + size * s_per_byte, rel=0.02)


def test_small_loads_teach_the_latency_and_large_ones_the_rate() -> None:
    small = learned(1024, 0.02, 1e-9)
    assert small.latency_s == pytest.approx(0.02, rel=0.05)
    assert small.s_per_byte == pytest.approx(1e-9, rel=0.05)
    large = learned(1 << 30, 0.002, 5e-9)
    assert large.s_per_byte == pytest.approx(5e-9, rel=0.05)
    assert large.latency_s == pytest.approx(0.002, rel=0.05)


def test_mixed_sizes_teach_latency_and_rate() -> None:
    rate = LoadRate(0.002, 1e-9)
    for _ in range(300):
        for size in (8192, 64 << 20):
            rate.observe(size, 0.01 + size * 4e-9)
    assert (rate.latency_s, rate.s_per_byte) == (pytest.approx(0.01, rel=0.1), pytest.approx(4e-9, rel=0.1))


def test_one_stuck_load_does_not_disqualify_a_link() -> None:
    rate = LoadRate(0.002, 1e-9)
    before_s = rate.seconds(1 << 20)
    rate.observe(1 << 20, 3600.0)
    assert before_s < rate.seconds(1 << 20) <= 3 * before_s


def test_loads_that_alternate_between_slow_and_fast_teach_what_lies_between() -> None:
    rate = LoadRate(1e-6, 1e-9)
    for _ in range(300):
        rate.observe(1 << 30, 4.0)
        rate.observe(1 << 30, 1.0)
    assert rate.seconds(1 << 30) == pytest.approx(2.0, rel=0.2)


def test_the_first_loads_correct_a_wrong_prior_faster() -> None:
    fresh, known = LoadRate(1e-6, 8e-9), learned(1 << 30, 1e-6, 8e-9)
    fresh.observe(1 << 30, 1.0)
    known.observe(1 << 30, 1.0)
    assert fresh.seconds(1 << 30) < 0.7 * known.seconds(1 << 30)


@pytest.mark.parametrize(("size", "seconds"), [(0, 1.0), (1024, 0.0), (-1, 1.0), (1024, -1.0)])
def test_an_empty_load_teaches_nothing(size: int, seconds: float) -> None:
    rate = LoadRate(0.002, 1e-9)
    rate.observe(size, seconds)
    assert (rate.latency_s, rate.s_per_byte, rate.loads) == (0.002, 1e-9, 0)


@pytest.mark.parametrize("figures", [(0.0, 1e-9), (0.001, 0.0)])
def test_a_link_rejects_nonpositive_latency_or_rate(figures: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="above 0"):
        LoadRate(*figures)
