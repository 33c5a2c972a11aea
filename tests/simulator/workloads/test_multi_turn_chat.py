from __future__ import annotations

from collections import Counter
from itertools import islice

import pytest

from simulator.workloads.multi_turn_chat import MultiTurnChatShape, multi_turn_chat
from simulator.workloads.trace import BLOCK_TOKENS, TraceRow
from tests.simulator.workloads.reuse import infinite_reuse


@pytest.fixture(scope="module")
def rows() -> list[TraceRow]:
    return list(multi_turn_chat(1, MultiTurnChatShape()))


def test_128_sessions_have_two_to_eight_rounds(rows: list[TraceRow]) -> None:
    rounds = Counter(Counter(row.session_id for row in rows).values())
    assert rounds == {2: 32, 4: 32, 6: 32, 8: 32}


def test_each_round_adds_1024_tokens_and_the_previous_response(rows: list[TraceRow]) -> None:
    session = [row.input_length for row in rows if row.session_id == "chat-3"]
    assert session == [1024 * turn + 4 * (turn - 1) for turn in range(1, 9)]


def test_an_infinite_cache_holds_the_whole_blocks_of_the_previous_turn(rows: list[TraceRow]) -> None:
    last: dict[object, int] = {}
    saved = 0
    for row in rows:
        saved += last.get(row.session_id, 0) // BLOCK_TOKENS * BLOCK_TOKENS
        last[row.session_id] = row.input_length
    assert infinite_reuse(rows)[0] == pytest.approx(saved / sum(row.input_length for row in rows))
    assert infinite_reuse(rows)[0] == pytest.approx(51_200 / 71_880)


def test_rows_are_ordered_by_arrival_and_long_runs_keep_the_rate() -> None:
    rows = list(islice(multi_turn_chat(2, MultiTurnChatShape(sessions=0, qps=8.0)), 20_000))
    times = [row.timestamp for row in rows]
    assert times == sorted(times)
    assert len(rows) / (times[-1] / 1000) == pytest.approx(8.0, rel=0.05)


def test_a_system_prompt_is_shared_by_all() -> None:
    rows = list(multi_turn_chat(1, MultiTurnChatShape(system_tokens=1500)))
    assert {row.hash_ids[:2] for row in rows} == {(0, 1)}
    assert min(row.input_length for row in rows) == 2524


def test_the_same_seed_repeats_the_rows_and_another_seed_changes_them(rows: list[TraceRow]) -> None:
    assert rows == list(multi_turn_chat(1, MultiTurnChatShape())) != list(multi_turn_chat(2, MultiTurnChatShape()))
