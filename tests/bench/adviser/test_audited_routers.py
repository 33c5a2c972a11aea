"""Rounds and verdict of bench.adviser.audited_routers. Its routers and engines run in the benchmark only."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from bench.adviser.audited_routers import (
    ENGINES,
    RATE,
    REQUESTS,
    AuditedRound,
    audit_of,
    counted,
    round_of,
    rows_of,
    verdict,
)
from bench.adviser.logged_client import ClientRecord
from bench.evidence.traces import MAX_INPUT
from simulator.engine_models.engine_profile import EngineProfile
from simulator.workloads.trace import TraceRow
from tests.controlplane.router_audit.logs import conversations, served

ROUND = AuditedRound(2.0, 1.5, 0.4, 0.3, 0.6, 0.3, 0.4, 0.6, 0.0)


def test_a_round_has_its_own_rows_at_the_rate_with_prompts_cut_to_the_limit() -> None:
    trace = [TraceRow(timestamp=0, input_length=30_000, output_length=1, hash_ids=(n,) * 59) for n in range(20_000)]
    rows = rows_of(0, trace)
    assert rows == rows_of(0, trace)
    assert len(rows) == REQUESTS
    assert rows[-1].timestamp / 1000 == pytest.approx(REQUESTS / RATE, rel=0.2)
    assert {(row.input_length, len(row.hash_ids)) for row in rows} == {(MAX_INPUT, MAX_INPUT // 512)}
    assert not {row.hash_ids for row in rows} & {row.hash_ids for row in rows_of(1, trace)}


def test_only_a_gain_within_the_range_agrees() -> None:
    outside = [replace(ROUND, after_s=after_s) for after_s in (1.3, 1.8)]
    figures, targets = verdict({"one": [ROUND] * 3, "two": [ROUND, *outside]})
    assert (targets["one_agrees"].value, targets["one_agrees"].holds) == (3, True)
    assert (targets["two_agrees"].value, targets["two_agrees"].holds) == (1, False)
    assert figures["two_2_gain_s"] == pytest.approx(0.7)
    assert figures["one_1_width_s"] == pytest.approx(0.3)


def test_a_late_round_is_repeated_and_does_not_count_toward_the_claim() -> None:
    late = replace(ROUND, late_s=0.3)
    assert counted(iter([late, ROUND]).__next__, 4) == ROUND
    assert counted(iter([late, late]).__next__, 2) == late
    figures, targets = verdict({"one": [ROUND, late]})
    assert (targets["one_agrees"].value, figures["one_counted"], figures["one_agrees_counted_or_not"]) == (1, 1, 2)


@pytest.mark.parametrize("router", ["sglang_router", "vllm_router"])
def test_audit_of_a_clients_csv_covers_the_gain_in_simulated_fleets(router: str, tmp_path: Path) -> None:
    rows = conversations(160, gap_ms=260)
    before, after = (records_of(rows, rule) for rule in ("round_robin", "least_cost"))
    lines = [
        f'2023-11-14 22:13:20 DEBUG http_request{{method=POST request_id="{item.request_id}"}}: smg::events: e.rs:58: '
        f"Sending request url=http://{item.answered_by}/v1\n"
        for item in before
    ]
    (tmp_path / "router.log").write_text("".join(lines))
    result = audit_of(router, rows, before, tmp_path)
    measured = round_of(before, after, result.gain_s)
    assert len(result.summary.engines) == ENGINES
    assert measured.agrees
    assert measured.gain_s > 0
    assert measured.hits_after > measured.hits_before
    assert 0 < measured.prefill_use < 1


def test_an_incomplete_log_is_no_round(tmp_path: Path) -> None:
    rows = conversations(40, gap_ms=260)
    (tmp_path / "router.log").write_text("2023-11-14 22:13:20  INFO smg::server: started\n")
    with pytest.raises(RuntimeError, match="0 of 40"):
        audit_of("sglang_router", rows, records_of(rows, "round_robin"), tmp_path)


def records_of(rows: list[TraceRow], rule: str) -> list[ClientRecord]:
    """Return what a client would know of a simulated fleet's answers, with a few milliseconds of noise."""
    rng, profile = Random(1), EngineProfile(recompute_last_block=True)
    return [
        ClientRecord(
            request_id=f"request-{number}", answered_by=record.engine_id, late_s=0.0,
            sent_s=1_700_000_000 + row.timestamp / 1000, prompt_tokens=row.input_length,
            output_tokens=row.output_length, cached_tokens=record.hit_tokens or 0,
            ttft_s=(record.ttft_s or 0.0) + rng.random() / 100, total_s=record.e2e_s or 0.0,
        )
        for number, (row, record) in enumerate(zip(rows, served(rows, rule, profile), strict=True))
    ]  # fmt: skip
