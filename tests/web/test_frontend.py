"""The console's JavaScript: its own tests, and its decoding of frames from Python."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from controlplane.platform.format import clock_time, day_time, duration, percent, rate, setting, short, whole
from tests.patience import PATIENCE_S
from tests.web.fake_fleet import LOST_AT, FakeFleet
from web.live.frames import encode_column, encode_keyframe
from web.live.history import FleetHistory, ScopedHistory
from web.live.verdict import findings

ROOT = Path(__file__).parents[2]
START = 1_800_000_000.0
READER = """
import { readFileSync } from 'node:fs';
import { readFrame } from './web/frontend/live/frame_reader.js';
import { FleetState } from './web/frontend/live/fleet_state.js';
const state = new FleetState();
const bytes = (path) => Uint8Array.from(readFileSync(path)).buffer;
const [keyframe, ...columns] = process.argv.slice(1);
state.applyKeyframe(readFrame(bytes(keyframe)));
const applied = columns.map((path) => state.applyColumn(readFrame(bytes(path), state.shape)));
const rows = state.engines.map((_, row) => row);
const plain = (value) => (Number.isNaN(value) ? null : value);
console.log(JSON.stringify({
  applied, first: state.first, index: state.index, at: state.at,
  tokens: rows.map((row) => state.series((index) => plain(state.engineAt('tokens', row, index)))),
  states: rows.map((row) => state.series((index) => state.stateAt(row, index))),
  hit: rows.map((row) => state.series((index) => plain(state.shareAt('hit', row, index)))),
  cv: state.pools.map((_, pool) => state.series((index) => plain(state.poolAt('cv', pool, index)))),
  hour: [...state.hour].map(plain), now: rows.map((row) => state.nowOf('tokens', row)),
  facts: state.engines, markers: state.markers, outside: plain(state.engineAt('tokens', 0, state.index + 1)),
}));
"""
FORMATS = """
import * as formats from './web/frontend/shell/format.js';
const [names, values] = process.argv.slice(1).map((text) => JSON.parse(text));
console.log(JSON.stringify(names.map((name) => values.map((value) => formats[name](value)))));
"""


@pytest.fixture(scope="module")
def node() -> str:
    path = shutil.which("node")
    if path is None:
        reason = "no Node: install nodejs 20 or newer to run the console's own tests"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return path


def run(node: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([node, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def test_javascript_tests_pass(node: str) -> None:
    files = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "web/frontend").rglob("*.test.js"))
    assert len(files) >= 10
    result = run(node, "--test", *files)
    assert result.returncode == 0, result.stdout[-4000:]


def test_browser_formats_numbers_as_python_does(node: str) -> None:
    names = {"short": short, "whole": whole, "setting": setting, "rate": rate, "duration": duration}
    names |= {"percentText": percent, "clock": clock_time, "dayClock": day_time}
    edges = (6e-7, 0.0009995, 0.04, 0.9995, 0.9999, 9.951, 59.97, 152, 999.6, 3600, 9949, 128e3, 981e3, 45.2e6, 5.4e8)
    values = [0, -0.04, -0.26, -3600, -1204, *edges]
    arguments = json.dumps([*names]), json.dumps(values)
    result = run(node, "--no-warnings", "--input-type=module", "--eval", FORMATS, "--", *arguments)
    assert result.returncode == 0, result.stderr[-4000:]
    for name, words in zip(names, json.loads(result.stdout), strict=True):
        assert words == [names[name](value) for value in values], name


def read_in_node(node: str, folder: Path, frames: list[bytes]) -> dict[str, object]:
    paths = []
    for number, frame in enumerate(frames):
        path = folder / f"{number}.bin"
        path.write_bytes(frame)
        paths.append(str(path))
    result = run(node, "--input-type=module", "--eval", READER, "--", *paths)
    assert result.returncode == 0, result.stderr[-4000:]
    return json.loads(result.stdout)


def frames_of(history: FleetHistory, fleet: FakeFleet, begin: float, steps: int) -> list[bytes]:
    frames = []
    for seq in range(1, steps + 1):
        before, last_marker = history.latest, history.markers.last_number
        history.add(fleet.sample_at(begin + seq / 2 + (9 if seq > steps // 2 else 0), START))
        frames.append(encode_column(ScopedHistory(history, None), seq, before, last_marker, findings(None)[0]))
    return frames


def test_browser_reaches_the_same_state_by_columns_as_by_a_keyframe(node: str, tmp_path: Path) -> None:
    fleet, history = FakeFleet(5, 2), FleetHistory()
    begin = LOST_AT - 10
    for step in range(60):
        history.add(fleet.sample_at(begin - 60 + step, START))
    keyframe = encode_keyframe(ScopedHistory(history, None), 0, findings(None)[0])
    columns = frames_of(history, fleet, begin, 60)
    by_columns = read_in_node(node, tmp_path, [keyframe, *columns])
    fresh = read_in_node(node, tmp_path, [encode_keyframe(ScopedHistory(history, None), 60, findings(None)[0])])
    assert by_columns.pop("applied") == [True] * 60
    assert fresh.pop("applied") == []
    assert by_columns == fresh
    assert any("lost" in states for states in by_columns["states"])


def test_browser_reads_the_values_that_python_wrote(node: str, tmp_path: Path) -> None:
    fleet, history = FakeFleet(3, 1), FleetHistory()
    for step in range(40):
        history.add(fleet.sample_at(step / 2, START))
    read = read_in_node(node, tmp_path, [encode_keyframe(ScopedHistory(history, None), 0, findings(None)[0])])
    window = history.window()
    for row, engine in enumerate(history.latest.engines):
        expected = [None if column is None else column.floats[0][row] for column in window]
        assert read["tokens"][row] == expected
        assert read["now"][row] == engine.in_flight_tokens
    cv = [None if column is None else column.pools["pool-0"][0] for column in window]
    assert all(
        (one is None) == (other is None) and (one is None or math.isclose(one, other, rel_tol=1e-6))
        for one, other in zip(read["cv"][0], cv, strict=True)
    )
    assert read["outside"] is None


def test_gap_in_the_sequence_is_detected(node: str, tmp_path: Path) -> None:
    fleet, history = FakeFleet(3, 1), FleetHistory()
    history.add(fleet.sample_at(0, START))
    keyframe = encode_keyframe(ScopedHistory(history, None), 0, findings(None)[0])
    columns = frames_of(history, fleet, 0, 3)
    assert read_in_node(node, tmp_path, [keyframe, columns[0], columns[2]])["applied"] == [True, False]
