from __future__ import annotations

from collections import Counter
from statistics import mean

import pytest

from simulator.workloads.document_qa import DocumentQaShape, document_qa
from simulator.workloads.shared_prefix import SharedPrefixShape, shared_prefix
from simulator.workloads.trace import BLOCK_TOKENS
from tests.simulator.workloads.reuse import infinite_reuse


def test_the_papers_setting_has_4096_requests_of_five_lengths() -> None:
    rows = list(shared_prefix(1, SharedPrefixShape()))
    assert len(rows) == 4096
    assert Counter(row.input_length for row in rows) == {
        512: 26 * 32,
        1024: 26 * 32,
        2048: 26 * 32,
        4096: 25 * 32,
        8192: 25 * 32,
    }
    assert {row.output_length for row in rows} == {4}


@pytest.mark.parametrize(("ratio", "blocks"), [(0.3, (0, 0, 1, 2, 4)), (0.5, (0, 1, 2, 4, 8)), (0.9, (0, 1, 3, 7, 14))])
def test_a_group_shares_the_whole_blocks_of_its_prefix(ratio: float, blocks: tuple[int, ...]) -> None:
    shape = SharedPrefixShape(ratio=ratio)
    rows = list(shared_prefix(1, shape))
    saved = sum((26 if index < 3 else 25) * 31 * count * BLOCK_TOKENS for index, count in enumerate(blocks))
    assert infinite_reuse(rows)[0] == pytest.approx(saved / sum(row.input_length for row in rows))


def test_in_round_robin_order_a_group_repeats_after_all_others() -> None:
    rows = list(shared_prefix(1, SharedPrefixShape(order="round_robin", ratio=0.9)))
    firsts = [row.hash_ids[0] for row in rows if row.input_length == 8192]
    assert firsts[:25] * 32 == firsts
    random = [row.hash_ids[0] for row in shared_prefix(1, SharedPrefixShape(ratio=0.9)) if row.input_length == 8192]
    assert sorted(random) == sorted(firsts) != random


def test_requests_arrive_as_a_poisson_process_and_follow_the_seed() -> None:
    rows = list(shared_prefix(1, SharedPrefixShape(qps=20)))
    assert mean([len(rows) / (rows[-1].timestamp / 1000)]) == pytest.approx(20, rel=0.05)
    assert (
        rows == list(shared_prefix(1, SharedPrefixShape(qps=20))) != list(shared_prefix(2, SharedPrefixShape(qps=20)))
    )


def test_every_document_has_its_questions_and_one_of_four_lengths() -> None:
    rows = list(document_qa(1, DocumentQaShape()))
    assert Counter(Counter(row.session_id for row in rows).values()) == {8: 512}
    assert Counter(row.input_length // 1024 * 1024 for row in rows) == {1024: 1024, 2048: 1024, 4096: 1024, 8192: 1024}
    assert mean(row.input_length for row in rows) == pytest.approx(3840 + 40, abs=2)


def test_every_question_except_the_first_hits_its_document() -> None:
    rows = list(document_qa(1, DocumentQaShape()))
    expected = 7 / 8 * 3840 * 4096 / sum(row.input_length for row in rows)
    assert infinite_reuse(rows) == (pytest.approx(expected), pytest.approx(7 / 8))


def test_in_round_robin_order_each_document_is_asked_once_per_turn() -> None:
    names = [row.session_id for row in document_qa(1, DocumentQaShape(order="round_robin"))]
    assert names[:512] * 8 == names
    assert len(set(names[:512])) == 512


def test_the_same_seed_repeats_the_rows_and_another_seed_changes_them() -> None:
    shape = DocumentQaShape(documents=10)
    assert list(document_qa(1, shape)) == list(document_qa(1, shape)) != list(document_qa(2, shape))
