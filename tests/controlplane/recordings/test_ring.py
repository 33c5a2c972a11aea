"""The ring keeps what was written, survives torn files, and stays within its bounds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from controlplane.frames import payloads
from controlplane.recordings.ring import LEAST_SEGMENT_BYTES, SEGMENT_S, TrafficRing, segment_rows
from gateway.contracts.traffic_row import TrafficRow
from tests.controlplane.recordings.traffic import START, batch, row, rows


@pytest.fixture
def ring(tmp_path: Path) -> TrafficRing:
    return TrafficRing(tmp_path / "ring", 1 << 20, 3600.0)


def within(ring: TrafficRing, begin: float = 0, end: float = 100) -> list[TrafficRow]:
    return list(ring.rows(START + begin, START + end))


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [START + 50]
    monkeypatch.setattr("controlplane.recordings.ring.time.time", lambda: now[0])
    return now


def test_rows_come_back_by_their_arrival(ring: TrafficRing) -> None:
    ring.append([batch(rows(3))])
    ring.append([batch(rows(3, 10))])
    assert within(ring) == rows(3) + rows(3, 10)
    assert within(ring, 2, 11) == [row(2), row(10)]
    assert within(ring, 90, 95) == []


def test_a_segment_holds_what_the_gateways_sent(ring: TrafficRing, tmp_path: Path) -> None:
    first, second = batch(rows(2)), batch(rows(2, 2))
    ring.append([first])
    ring.append([second])
    (path,) = (tmp_path / "ring").iterdir()
    with path.open("rb") as file:
        assert list(payloads(file)) == [first, second]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_batch_that_is_none_is_passed_over(ring: TrafficRing, caplog: pytest.LogCaptureFixture) -> None:
    ring.append([batch(rows(1)), b"no batch", batch(rows(1, 1))])
    assert within(ring) == rows(2)
    assert "cannot be read" in caplog.text


def test_a_torn_tail_costs_only_itself(ring: TrafficRing, tmp_path: Path) -> None:
    ring.append([batch(rows(3))])
    (path,) = (tmp_path / "ring").iterdir()
    whole = path.read_bytes()
    ring.append([batch(rows(3, 3))])
    both = path.read_bytes()
    for cut in range(len(whole), len(both)):
        path.write_bytes(both[:cut])
        found = list(segment_rows(path))
        assert found[:3] == rows(3)
        assert found[3:] == rows(3, 3)[: len(found) - 3]


def test_after_a_restart_a_new_segment_begins(ring: TrafficRing, tmp_path: Path, clock: list[float]) -> None:
    ring.append([batch(rows(3))])
    again = TrafficRing(tmp_path / "ring", 1 << 20, 3600.0)
    again.append([batch(rows(3, 3))])
    assert len(again.names()) == 2
    assert within(again) == rows(6)


def test_what_cannot_be_written_whole_ends_the_segment(ring: TrafficRing, monkeypatch: pytest.MonkeyPatch) -> None:
    ring.append([batch(rows(1))])
    write = os.write
    with monkeypatch.context() as full:
        full.setattr("controlplane.recordings.ring.os.write", lambda handle, data: write(handle, data[:10]))
        with pytest.raises(OSError, match="only a part"):
            ring.append([batch(rows(1, 1))])
    ring.append([batch(rows(1, 2))])
    assert within(ring) == [row(0), row(2)]


def test_the_byte_budget_holds(tmp_path: Path, clock: list[float]) -> None:
    budget = 4 * LEAST_SEGMENT_BYTES
    ring = TrafficRing(tmp_path / "ring", budget, 1e9)
    number = 0
    while len(ring.names()) < 8:
        clock[0] = START + number
        ring.append([batch([row(number + place, blocks=tuple(os.urandom(60))) for place in range(200)])])
        number += 200
    assert ring.shrink(clock[0]) > 0
    assert ring.size_bytes() <= budget
    newest = within(ring, 0, 10**7)[-1]
    assert newest.at == START + number - 1


def test_old_segments_leave(ring: TrafficRing, clock: list[float]) -> None:
    for hours in range(4):
        clock[0] = START + hours * 3600
        ring.append([batch(rows(1, hours * 3600))])
    assert ring.shrink(clock[0]) == 1
    assert [each.at - START for each in within(ring, 0, 10**6)] == [3600, 7200, 10800]


def test_it_tells_its_span(ring: TrafficRing) -> None:
    assert ring.span() is None
    ring.append([batch(rows(1))])
    begun, until = ring.span() or (0.0, 0.0)
    assert begun == pytest.approx(START + 50)
    assert until > 0


def test_a_long_running_segment_gives_way(ring: TrafficRing, clock: list[float]) -> None:
    ring.append([batch(rows(1))])
    clock[0] += SEGMENT_S + 1
    ring.append([batch(rows(1, 1))])
    assert len(ring.names()) == 2
