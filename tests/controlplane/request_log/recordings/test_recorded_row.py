"""Anonymized names in a recording preserve equality and reveal nothing else."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from controlplane.request_log.recordings.kept_traces import written
from controlplane.request_log.recordings.recorded_row import RecordedRow, Resalting, read_recorded
from simulator.workloads.trace import read_trace
from tests.controlplane.request_log.recordings.traffic import START, WIDE, row, rows


def test_equal_prefixes_stay_equal_within_a_recording() -> None:
    names = Resalting(b"a")
    one, other = names.recorded(row(1), START), names.recorded(row(2), START)
    assert one.hash_ids[0] == other.hash_ids[0]
    assert one.hash_ids[1] != other.hash_ids[1]
    assert names.recorded(row(6), START).session_id == one.session_id != other.session_id


def test_names_cannot_be_linked_across_recordings_or_to_the_fleet() -> None:
    one, other = Resalting(b"a").recorded(row(1), START), Resalting(b"b").recorded(row(1), START)
    assert not set(one.hash_ids) & set(other.hash_ids)
    assert not set(one.hash_ids) & {7, WIDE - 1, 14}
    assert (one.session_id, one.tenant) != (other.session_id, other.tenant)
    assert max(*one.hash_ids, *other.hash_ids) < 2**53


def test_first_small_blocks_are_anonymized_too() -> None:
    names = Resalting(b"a")
    one, other = names.recorded(row(1, head=(5, 6)), START), names.recorded(row(2, head=(5, 7)), START)
    assert one.head_ids[0] == other.head_ids[0] != 5
    assert one.head_ids[1] != other.head_ids[1]


def test_a_request_rejected_unread_is_a_row_that_traces_leave_out(tmp_path: Path) -> None:
    unread = row(1, prompt_tokens=0, blocks=(), outcome="rejected", late=True, first_token_after_s=None)
    made = written(map(partial(Resalting(b"a").recorded, begin=START), (row(0), unread, row(2, outcome="rejected"))))
    path = tmp_path / "trace.jsonl.gz"
    path.write_bytes(made.packed)
    assert [item.unread for item in read_recorded(path)] == [False, True, False]
    assert [item.timestamp for item in read_trace(path)] == [0.0, 2000.0]
    assert (made.rows, made.statistics.rejected, made.statistics.unread) == (3, 2, 1)
    assert made.statistics.prompt_tokens == 3000


def test_uploaded_name_is_not_stored() -> None:
    uploaded = RecordedRow(
        timestamp=1.0, input_length=600, output_length=1, hash_ids=(-1, 2, 3), session_id="canary-session",
        tenant="canary-tenant", cache_hint="canary hint",
    )  # fmt: skip
    kept = Resalting(b"a").uploaded(uploaded)
    assert "canary" not in repr(kept)
    assert len(kept.hash_ids) == 2


def test_recording_is_a_valid_trace_for_other_tools(tmp_path: Path) -> None:
    names = Resalting(b"a")
    made = written(names.recorded(item, START) for item in reversed(rows(20)))
    path = tmp_path / "trace.jsonl.gz"
    path.write_bytes(made.packed)
    trace = read_trace(path)
    assert [item.timestamp for item in trace] == [1000.0 * number for number in range(20)]
    assert (trace[3].input_length, trace[3].output_length) == (1500, 20)
    stored_rows = list(read_recorded(path))
    assert (stored_rows[0].ttft_s, stored_rows[0].cached_tokens, stored_rows[0].outcome, stored_rows[0].engines) == (
        0.5,
        512,
        "completed",
        4,
    )
    figures = made.statistics
    assert (made.rows, figures.sessions, figures.tenants, figures.engines) == (20, 5, 1, 4)
    assert (figures.span_s, figures.ttft_p50_s, figures.hit_rate) == (19.0, 0.5, 512 / 1500)
