from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from bench.live.loopback_ports import free_port
from simulator.engine_models.engine_profile import EngineProfile
from simulator.replay import replay_progress
from simulator.replay.__main__ import ReplayOptions, TargetUnreachableError, endless_turns, main, replay
from simulator.replay.replay_progress import Lines, ProgressBar, progress_for
from simulator.replay.replay_summary import ReplayOutcome, ReplaySummary, SummaryCounter, render_summary
from simulator.workloads.conversation_like import generate
from simulator.workloads.trace import TraceRow, write_trace
from tests.patience import PATIENCE_S
from tests.simulator.conftest import RunningEngine, StartEngine

_ROWS = [
    TraceRow(0, 1024, 3, (1, 2)),
    TraceRow(200, 1500, 3, (1, 2, 3)),
    TraceRow(400, 1024, 3, (7, 8)),
    TraceRow(600, 2048, 3, (1, 2, 3, 4)),
]
"""Against an empty cache the second row finds 2 blocks, the fourth finds 2 (block 3 was never full)."""


@pytest.fixture
async def engine(start_engine: StartEngine) -> RunningEngine:
    return await start_engine(time_scale=50.0, profile=EngineProfile(recompute_last_block=True))


@pytest.mark.parametrize("chat", [True, False])
async def test_rows_become_requests_whose_hits_follow_the_hash_ids(engine: RunningEngine, chat: bool) -> None:
    options = ReplayOptions(target=engine.url, model="demo", chat=chat)
    summary = await replay(_ROWS, options)
    assert (summary.requests, summary.ok, summary.errors) == (4, 4, {})
    template = 4 if chat else 0
    assert summary.prompt_tokens == 1024 + 1500 + 1024 + 2048 + 4 * template
    assert summary.cached_tokens == 2 * 512 + 2 * 512
    assert summary.output_tokens == 12
    assert summary.ttft_p99_s is not None


async def test_max_input_truncates_prompts_and_blocks(engine: RunningEngine) -> None:
    options = ReplayOptions(target=engine.url, model="demo", chat=False, max_input=512)
    summary = await replay(_ROWS, options)
    assert summary.prompt_tokens == 4 * 512


async def test_qps_and_speed_set_the_pace(engine: RunningEngine) -> None:
    rows = [TraceRow(1000 * number, 10, 1, ()) for number in range(6)]
    started = time.monotonic()
    await replay(rows, ReplayOptions(target=engine.url, model="demo", qps=10.0, speed=2.0))
    assert 0.29 <= time.monotonic() - started < 5, "6 rows at 2 × 10 per second span 0.3 s, not 5"


async def test_in_flight_requests_are_bounded_and_the_lag_is_reported(start_engine: StartEngine) -> None:
    engine = await start_engine(time_scale=2.0)
    most = 0

    async def watch() -> None:
        nonlocal most
        while True:
            most = max(most, engine.server.runtime.load)
            await asyncio.sleep(0.005)

    watcher = asyncio.create_task(watch())
    rows = [TraceRow(0, 5000, 1, (number,)) for number in range(5)]
    summary = await replay(rows, ReplayOptions(target=engine.url, model="demo", max_in_flight=2))
    watcher.cancel()
    assert most == 2
    assert summary.latest_send_s > 0.2


async def test_a_loop_runs_until_stopped_and_each_pass_has_unique_texts(engine: RunningEngine) -> None:
    stop = asyncio.Event()
    rows = [TraceRow(number, 1024, 1, (1, 2)) for number in range(2)]
    options = ReplayOptions(target=engine.url, model="demo", loop=True, chat=False, max_in_flight=1)

    async def stop_later() -> None:
        while engine.server.runtime.model.cached_blocks < 6:
            await asyncio.sleep(0.01)
        stop.set()

    async with asyncio.timeout(PATIENCE_S):
        summary, _ = await asyncio.gather(replay(rows, options, stop=stop), stop_later())
    assert summary.ok >= 4
    assert summary.failed == 0


async def test_a_wrong_model_fails_every_row_with_the_servers_message(engine: RunningEngine) -> None:
    summary = await replay(_ROWS, ReplayOptions(target=engine.url, model="other"))
    assert summary.failed == 4
    assert list(summary.errors) == ["HTTP 404: The model `other` does not exist."]


async def test_the_replay_waits_for_a_target_that_starts_late(start_engine: StartEngine) -> None:
    port = free_port()
    said: list[str] = []
    options = ReplayOptions(target=f"http://127.0.0.1:{port}", model="demo", wait_s=20)
    waiting = asyncio.create_task(replay(_ROWS[:1], options, say=said.append))
    while not said:
        await asyncio.sleep(0.01)
    await start_engine(port=port)
    assert (await waiting).ok == 1
    assert said == [f"waiting up to 20 s for {options.target} (no connection)"]


async def test_a_target_that_never_starts_is_given_up() -> None:
    options = ReplayOptions(target=f"http://127.0.0.1:{free_port()}", wait_s=0)
    with pytest.raises(TargetUnreachableError, match="not up after 0 s"):
        await replay(_ROWS, options)


def test_the_command_reports_faults_of_a_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "wrong.jsonl"
    path.write_text("nonsense\n")
    assert main([str(path)]) == 1
    assert "wrong.jsonl:1" in capsys.readouterr().err


@pytest.mark.processes
async def test_the_command_writes_its_summary(engine: RunningEngine, tmp_path: Path) -> None:
    trace, out = tmp_path / "trace.jsonl.gz", tmp_path / "out.json"
    write_trace(trace, _ROWS)
    arguments = [str(trace), "--target", engine.url, "--model", "demo", "--json", str(out), "--endpoint", "completions"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "simulator.replay", *arguments, "--parent-pid", str(os.getpid()), stdout=subprocess.PIPE
    )
    printed, _ = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 0
    assert b"requests      4 in" in printed
    summary = json.loads(out.read_text())
    assert (summary["ok"], summary["cached_tokens"]) == (4, 2048)


@pytest.mark.processes
async def test_sigterm_ends_a_looping_replay_with_its_summary(engine: RunningEngine) -> None:
    arguments = ["generated", "--target", engine.url, "--model", "demo", "--max-rows", "5", "--qps", "50", "--loop"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "simulator.replay", *arguments, "--max-input", "600", stdout=subprocess.PIPE
    )
    while engine.server.runtime.model.cached_blocks < 3:
        await asyncio.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    printed, _ = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode == 0
    assert b"ok  " in printed


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _counter() -> SummaryCounter:
    counter = SummaryCounter()
    counter.add(ReplayOutcome(status="ok"))
    counter.add(ReplayOutcome(status="rejected", error="HTTP 429"))
    return counter


def test_a_terminal_gets_a_bar_with_the_counts() -> None:
    terminal = _Terminal()
    progress = progress_for(10, terminal)
    assert isinstance(progress, ProgressBar)
    progress.update(_counter())
    progress.close()
    assert "ok 1, rejected 1, failed 0" in terminal.getvalue()


def test_a_log_gets_periodic_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 1.0, 11.0, 12.0])
    monkeypatch.setattr(replay_progress.time, "monotonic", lambda: next(now))
    log = io.StringIO()
    progress = progress_for(None, log)
    assert isinstance(progress, Lines)
    for _ in range(3):
        progress.update(_counter())
    progress.close()
    assert log.getvalue() == "replay: 2/∞ requests, ok 1, rejected 1, failed 0\n"


def _summary_counter() -> SummaryCounter:
    counter = SummaryCounter()
    for number in range(1, 101):
        counter.add(
            ReplayOutcome(status="ok", ttft_s=number / 100, prompt_tokens=100, cached_tokens=40, output_tokens=5)
        )
    counter.add(ReplayOutcome(status="rejected", error="HTTP 429"))
    counter.add(ReplayOutcome(status="failed", error="cannot connect"))
    return counter


def test_outcomes_are_summed() -> None:
    summary = _summary_counter().summary(10.0)
    assert (summary.requests, summary.ok, summary.rejected, summary.failed) == (102, 100, 1, 1)
    assert (summary.ttft_p50_s, summary.ttft_p90_s, summary.ttft_p99_s) == (0.5, 0.9, 0.99)
    assert summary.cached_share == pytest.approx(0.4)
    assert summary.output_tokens_per_s == pytest.approx(50.0)
    assert summary.errors == {"HTTP 429": 1, "cannot connect": 1}


def test_responses_without_reported_cached_tokens_do_not_dilute_the_share() -> None:
    counter = _summary_counter()
    counter.add(ReplayOutcome(status="ok", ttft_s=1.0, prompt_tokens=10_000))
    summary = counter.summary(10.0)
    assert summary.cached_share == pytest.approx(0.4)
    assert summary.prompt_tokens == 20_000


def test_unmeasured_figures_are_none_and_not_zero() -> None:
    summary = SummaryCounter().summary(0.0)
    assert (summary.ttft_p50_s, summary.cached_share, summary.output_tokens_per_s) == (None, None, 0.0)
    assert "not reported" in render_summary(summary)


def test_the_lines_name_every_error() -> None:
    text = render_summary(_summary_counter().summary(10.0))
    assert "1 × cannot connect" in text
    assert "p90 0.900 s" in text


def test_a_summary_round_trips_through_json() -> None:
    summary = _summary_counter().summary(10.0)
    assert msgspec.json.decode(msgspec.json.encode(summary), type=ReplaySummary) == summary


def test_passes_of_a_generated_trace_continue_the_sessions_of_the_pass_before() -> None:
    rows = generate(1000, 3)
    turns = endless_turns(rows)
    span_ms = (rows[-1].timestamp - rows[0].timestamp) / 2
    assert len(turns) == pytest.approx(500, rel=0.25)
    assert [row.timestamp for row, _ in turns] == sorted(row.timestamp for row, _ in turns)
    assert max(row.timestamp - rows[0].timestamp for row, _ in turns) <= span_ms
    assert {earlier for _, earlier in turns} == {0, 1}
    # Two passes in a row have each session that begins in the first one, at its own times.
    times: dict[object, list[float]] = {}
    for of_pass in (0, 1):
        for row, earlier in turns:
            if of_pass == earlier:
                times.setdefault(row.session_id, []).append(row.timestamp + of_pass * span_ms)
    for session, moments in times.items():
        assert moments == pytest.approx([row.timestamp for row in rows if row.session_id == session])
