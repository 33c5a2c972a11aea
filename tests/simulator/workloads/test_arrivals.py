import msgspec
import pytest

from simulator.workloads.arrivals import FixedArrivals, arrivals_of, heads_of_rows, keys_of_rows, scaled_times
from tests.simulator.fleets import BLOCK, row


def test_rows_arrive_at_the_mean_rate_in_the_rhythm_of_the_trace() -> None:
    rows = [row(10, ()), row(11, ()), row(14, ()), row(20, ())]
    assert scaled_times(rows, 2.0) == pytest.approx([0.0, 0.2, 0.8, 2.0])
    assert scaled_times(rows, None) == [0.0, 1.0, 4.0, 10.0]


def test_rows_of_equal_time_are_spread_evenly() -> None:
    assert scaled_times([row(5, ())] * 3, 2.0) == [0.0, 0.5, 1.0]


def test_a_limit_truncates_prompt_and_blocks() -> None:
    rows = [row(0, range(5), tokens=4 * BLOCK + 7)]
    keys = keys_of_rows(rows, 1, 2 * BLOCK)
    (arrival,) = arrivals_of(rows, keys, qps=None, ttft_slo_s=5.0, max_input=2 * BLOCK)
    assert (arrival.request.prompt_tokens, len(arrival.request.keys)) == (1024, 2)


def test_a_partial_last_block_has_a_key_and_surplus_ids_have_none() -> None:
    assert [len(keys) for keys in keys_of_rows([row(0, (1, 2), tokens=600), row(0, (1, 2, 3), tokens=600)], 1)] == [
        2,
        2,
    ]


def test_keys_differ_between_seeds_and_are_shared_within_one() -> None:
    rows = [row(0, (1, 2)), row(1, (1, 3))]
    first, second = keys_of_rows(rows, 1), keys_of_rows(rows, 2)
    assert first[0][0] == first[1][0]
    assert first[0][1] != first[1][1]
    assert not set(first[0]) & set(second[0])


def test_an_open_loop_yields_every_request_once() -> None:
    rows = [row(0, (1,)), row(4, (2,))]
    source = FixedArrivals(arrivals_of(rows, keys_of_rows(rows, 0), qps=None, ttft_slo_s=5.0))
    seen = []
    while (at_s := source.next_time()) is not None:
        taken = source.take()
        seen.append((at_s, taken.request.request_id))
        source.ended(taken.request.request_id, at_s)
    assert seen == [(0.0, "request-00000000"), (4.0, "request-00000001")]


def test_the_first_small_blocks_are_followed_by_the_larger_ones() -> None:
    plain = row(0, (1, 2, 3), tokens=1536)
    within = msgspec.structs.replace(plain, head_ids=(7, 8, 1, 9))
    before = msgspec.structs.replace(plain, head_ids=(7, 8))
    (keys,) = keys_of_rows([plain], 1)
    heads = heads_of_rows([plain, within, before], 1)
    assert [len(head) for head in heads] == [0, 6, 5]
    assert heads[1][2:3] + heads[1][4:] == keys
    assert heads[2][2:] == keys
