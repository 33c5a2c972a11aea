from __future__ import annotations

from collections import Counter
from statistics import mean

import pytest

from simulator.workloads.document_qa import DocumentQaShape, document_qa
from tests.simulator.workloads.reuse import infinite_reuse


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
