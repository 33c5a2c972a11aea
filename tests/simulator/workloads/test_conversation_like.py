from __future__ import annotations

from collections import Counter
from itertools import islice
from statistics import mean, median

import pytest

from simulator.workloads.conversation_like import MAX_PROMPT_TOKENS, WorkloadShape, conversation_like, generate
from simulator.workloads.trace import BLOCK_TOKENS, TraceRow


def _reuse(rows: list[TraceRow]) -> tuple[float, float, float]:
    """Return shares (tokens seen before, rows that share half their prompt, rows that share only one block)."""
    seen: set[int] = set()
    hits, halves, shallow = 0, 0, 0
    for row in rows:
        depth = next((index for index, block in enumerate(row.hash_ids) if block not in seen), len(row.hash_ids))
        seen.update(row.hash_ids)
        hit = min(depth * BLOCK_TOKENS, row.input_length)
        hits += hit
        halves += 2 * hit >= row.input_length
        shallow += depth <= 1
    return hits / sum(row.input_length for row in rows), halves / len(rows), shallow / len(rows)


@pytest.fixture(scope="module")
def rows() -> list[TraceRow]:
    return generate(12_031, seed=1)


def test_lengths_have_the_published_means(rows: list[TraceRow]) -> None:
    assert mean(row.input_length for row in rows) == pytest.approx(12_035, rel=0.08)
    assert mean(row.output_length for row in rows) == pytest.approx(343, rel=0.05)


def test_lengths_are_skewed_as_in_the_trace(rows: list[TraceRow]) -> None:
    lengths = sorted(row.input_length for row in rows)
    assert median(lengths) == pytest.approx(6909, rel=0.12)
    assert lengths[len(lengths) * 9 // 10] == pytest.approx(27_367, rel=0.12)
    assert median(row.output_length for row in rows) == pytest.approx(350, rel=0.06)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_an_infinite_cache_would_hold_37_to_40_percent_of_the_tokens(seed: int) -> None:
    tokens, halves, shallow = _reuse(generate(12_031, seed))
    assert 0.35 <= tokens <= 0.41
    assert halves == pytest.approx(0.42, abs=0.03)
    assert shallow == pytest.approx(0.63, abs=0.05)


def test_requests_arrive_at_the_published_rate(rows: list[TraceRow]) -> None:
    assert len(rows) / (rows[-1].timestamp / 1000) == pytest.approx(3.4, rel=0.08)


def test_ids_identify_prefixes_and_fill_the_prompt(rows: list[TraceRow]) -> None:
    before: dict[int, int] = {}
    for row in rows:
        assert len(row.hash_ids) == -(-row.input_length // BLOCK_TOKENS)
        assert 1 <= row.input_length <= MAX_PROMPT_TOKENS
        for parent, block in zip((-1, *row.hash_ids), row.hash_ids, strict=False):
            assert before.setdefault(block, parent) == parent, "one id has one prefix"


def test_sessions_grow_with_each_turn(rows: list[TraceRow]) -> None:
    turns = Counter(row.session_id for row in rows)
    assert 0.25 < sum(1 for count in turns.values() if count > 1) / len(turns) < 0.35
    last: dict[object, int] = {}
    grown: list[bool] = []
    for row in rows:
        if row.session_id in last:
            grown.append(row.input_length > last[row.session_id])
        last[row.session_id] = row.input_length
    assert mean(grown) > 0.8


def test_popular_documents_arrive_in_bursts(rows: list[TraceRow]) -> None:
    openings: dict[int, list[float]] = {}
    seen: set[object] = set()
    for row in rows:
        if row.session_id not in seen and len(row.hash_ids) > 5:
            openings.setdefault(row.hash_ids[5], []).append(row.timestamp / 1000)
        seen.add(row.session_id)
    bursts = [times for times in openings.values() if len(times) >= 8]
    assert len(bursts) >= 5
    assert median(times[-1] - times[0] for times in bursts) < 300


def test_the_same_seed_repeats_the_rows_and_another_seed_changes_them() -> None:
    assert generate(200, 4) == generate(200, 4)
    assert generate(200, 4) != generate(200, 5)
    assert list(islice(conversation_like(4), 50)) == generate(200, 4)[:50]


def test_rows_are_ordered_by_arrival_and_times_rounded_down_to_ticks() -> None:
    rows = generate(500, 6, WorkloadShape(tick_ms=3000))
    times = [row.timestamp for row in rows]
    assert times == sorted(times)
    assert all(time % 3000 == 0 for time in times)
