import math

import pytest

from routing.advisories.advised_routing import prefetch_starts
from routing.advisories.session_cost import EngineOffer, SessionEngineSpeed, at_arrival, cheapest, cost_of

SPEED = SessionEngineSpeed(
    prefill_s_per_token=1e-4,
    attention_s_per_token_pair=0.0,
    read_s_per_token=1e-7,
    step_s_per_request=0.0,
    answer_tokens=200,
)


def offer(engine_id: int = 0, load_s: float = 0.0, backlog_s: float = 0.0, resident: int = 0, requests: int = 0):
    return EngineOffer(
        engine_id=engine_id, load_s=load_s, prefill_backlog_s=backlog_s, resident_tokens=resident, requests=requests
    )


def test_a_cache_is_loaded_if_faster_than_recomputing_it() -> None:
    assert not cost_of(offer(load_s=0.09), 1_000, SPEED).recompute
    assert cost_of(offer(load_s=0.11), 1_000, SPEED).recompute


def test_a_load_hidden_behind_queued_prefills_is_free() -> None:
    cost = cost_of(offer(load_s=0.11, backlog_s=0.2), 1_000, SPEED)
    assert not cost.recompute
    assert cost.ready_s == 0.0


def test_a_cache_without_a_copy_is_recomputed_under_every_rule() -> None:
    cost = cost_of(offer(load_s=math.inf), 1_000, SPEED, may_recompute=False)
    assert cost.recompute
    assert cost.ready_s == pytest.approx(0.1)


def test_the_load_counts_kv_tokens_besides_requests() -> None:
    few_long = cost_of(offer(0, resident=100_000, requests=1), 1_000, SPEED)
    many_short = cost_of(offer(1, resident=2_000, requests=4), 1_000, SPEED)
    assert cheapest([few_long, many_short]).engine_id == 1


def test_recomputing_counts_for_every_request_that_it_delays() -> None:
    free = cost_of(offer(0, load_s=math.inf), 10_000, SPEED)
    busy = cost_of(offer(1, load_s=math.inf, requests=10), 10_000, SPEED)
    assert busy.total_s - free.total_s >= 10 * 1.0


def test_a_tie_goes_to_the_lower_engine_id() -> None:
    assert cheapest([cost_of(offer(2), 10, SPEED), cost_of(offer(1), 10, SPEED)]).engine_id == 1


@pytest.mark.parametrize(("reserved_load_s", "chosen"), [(0.2, 1), (0.4, 0)])
def test_an_arrival_leaves_its_reserved_engine_only_for_a_clear_gain(reserved_load_s: float, chosen: int) -> None:
    costs = [cost_of(offer(0), 100_000, SPEED), cost_of(offer(1, load_s=reserved_load_s), 100_000, SPEED)]
    assert at_arrival(costs, 1, margin_s=0.3).engine_id == chosen


def test_an_arrival_whose_reserved_engine_is_gone_takes_the_cheapest_engine() -> None:
    assert at_arrival([cost_of(offer(3), 10, SPEED)], 7, margin_s=0.3).engine_id == 3


def test_an_empty_fleet_raises_an_error() -> None:
    with pytest.raises(ValueError, match="no engine"):
        at_arrival([], None, margin_s=0.3)


@pytest.mark.parametrize(
    ("eta_s", "lead_s", "starts"), [(0.5, 11.0, True), (5.0, 11.0, False), (2.0, 1.0, False), (0.0, 11.0, False)]
)
def test_a_prefetch_starts_only_if_it_ends_in_time(eta_s: float, lead_s: float, starts: bool) -> None:
    assert prefetch_starts(eta_s, lead_s) is starts
