from __future__ import annotations

from collections import Counter
from itertools import islice
from statistics import mean

import pytest

from simulator.workloads.toolagent_like import ToolagentLikeShape, toolagent_like
from simulator.workloads.trace import BLOCK_TOKENS, TraceRow
from tests.simulator.workloads.reuse import infinite_reuse


@pytest.fixture(scope="module")
def rows() -> list[TraceRow]:
    return list(islice(toolagent_like(7, ToolagentLikeShape()), 23_608))


def test_lengths_have_the_published_means(rows: list[TraceRow]) -> None:
    assert mean(row.input_length for row in rows) == pytest.approx(8596, rel=0.05)
    assert mean(row.output_length for row in rows) == pytest.approx(182, rel=0.08)


def test_an_infinite_cache_would_hold_55_to_59_percent(rows: list[TraceRow]) -> None:
    tokens, halves = infinite_reuse(rows)
    assert 0.54 <= tokens <= 0.60
    assert 0.71 <= halves <= 0.77


def test_two_hot_prefixes_have_their_published_shapes(rows: list[TraceRow]) -> None:
    first = Counter(row.hash_ids[0] for row in rows).most_common(3)
    shares = {block: count / len(rows) for block, count in first}
    search, router = sorted(block for block in shares if block)
    assert shares[search] == pytest.approx(0.378, abs=0.015)
    assert shares[router] == pytest.approx(0.149, abs=0.015)
    calls = [row for row in rows if row.hash_ids[0] == search]
    assert len({row.hash_ids[:12] for row in calls}) == 1
    assert {len(row.hash_ids) - 12 for row in calls} == {1, 2, 3, 4, 5}
    assert {row.output_length for row in calls} == {3, *range(24, 54)}
    calls = [row for row in rows if row.hash_ids[0] == router]
    assert {len(row.hash_ids) - 5 for row in calls} <= {1, 2, 3, 4}
    assert {row.output_length for row in calls} == set(range(16, 31))


def test_rows_are_ordered_by_arrival_at_the_published_rate(rows: list[TraceRow]) -> None:
    times = [row.timestamp for row in rows]
    assert times == sorted(times)
    assert len(rows) / (times[-1] / 1000) == pytest.approx(6.56, rel=0.05)


def test_ids_identify_prefixes_and_fill_the_prompt(rows: list[TraceRow]) -> None:
    before: dict[int, int] = {}
    for row in rows:
        assert len(row.hash_ids) == -(-row.input_length // BLOCK_TOKENS)
        for parent, block in zip((-1, *row.hash_ids), row.hash_ids, strict=False):
            assert before.setdefault(block, parent) == parent, "one id has one prefix"


def test_the_mix_must_include_conversations() -> None:
    with pytest.raises(ValueError, match="nothing for conversation"):
        next(toolagent_like(1, ToolagentLikeShape(search_share=0.6, router_share=0.4)))
