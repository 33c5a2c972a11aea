"""The journal keeps every entry and open request through kills, torn records, and segments."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from gateway.usage import usage_journal
from gateway.usage.usage_journal import START_GAP, UsageJournal


def open_journal(state_dir: Path) -> UsageJournal:
    return UsageJournal(state_dir, ends=lambda payload, number: b"cut %d " % number + payload)


def killed(journal: UsageJournal) -> None:
    """Release what the kernel would release, and nothing more."""
    journal.close()


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_journal, "SEGMENT_BYTES", 2048)


def test_entries_are_numbered_and_open_requests_end_as_cut(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    journal.begin("a", b"open a")
    journal.begin("b", b"open b")
    first = journal.last + 1
    journal.add(b"one", "a")
    killed(journal)
    again = open_journal(tmp_path)
    assert again.name == journal.name
    assert again.entries(0, 10) == (0, [b"one"])
    assert again.entries(first, 10) == (first, [b"cut %d open b" % again.last])
    assert again.last == first + START_GAP + 1
    assert again.open == {}
    killed(again)


def test_a_journal_in_use_is_left_to_its_process(tmp_path: Path) -> None:
    one, other = open_journal(tmp_path), open_journal(tmp_path)
    assert one.name != other.name
    killed(one)
    killed(other)


class History:
    """A journal, its deliveries, and what should be in the ledger in the end."""

    def __init__(self, state_dir: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.state_dir = state_dir
        self.journal = open_journal(state_dir)
        self.expected: list[str] = []
        self.stored: list[str] = []
        self.running: list[str] = []
        self.mark = 0

    def begin(self) -> None:
        self.running.append(f"r{len(self.expected) + len(self.running)}")
        self.journal.begin(self.running[-1], self.running[-1].encode())

    def end(self) -> None:
        if self.running:
            name = self.running.pop(self.rng.randrange(len(self.running)))
            self.journal.add(b"end %d " % (self.journal.last + 1) + name.encode(), name)
            self.expected.append(name)

    def deliver(self) -> None:
        """Apply a batch that may be lost, or repeat what is applied."""
        after, payloads = self.journal.entries(max(self.mark - self.rng.choice((0, 3)), 0), self.rng.randint(1, 9))
        if after > self.mark or self.rng.random() < 0.3:
            return
        for payload in payloads:
            _, number, name = payload.decode().split()
            if int(number) > self.mark:
                self.stored.append(name)
                self.mark = int(number)
        if self.rng.random() < 0.5:
            self.journal.acknowledge(self.mark)

    def kill(self) -> None:
        killed(self.journal)
        if self.rng.random() < 0.5:
            tear(self.state_dir, self.journal.name, self.rng)
        self.journal = open_journal(self.state_dir)
        self.expected += self.running
        self.running = []


@pytest.mark.parametrize("seed", range(3))
def test_random_histories_lose_and_repeat_nothing(tmp_path: Path, seed: int) -> None:
    """Deliveries are lost and repeated, the process is killed, and the last record is torn."""
    history = History(tmp_path, seed)
    steps = (history.begin, history.end, history.deliver, history.kill)
    for step in history.rng.choices(steps, weights=(8, 8, 4, 1), k=700):
        step()
    history.kill()
    while history.journal.entries(history.mark, 1)[1]:
        history.deliver()
    assert sorted(history.stored) == sorted(history.expected)
    killed(history.journal)


def tear(state_dir: Path, name: str, rng: random.Random) -> None:
    """Add the beginning of a record, as a kill in the middle of a copy leaves it."""
    path = max((state_dir / "usage" / name).glob("*.segment"))
    data = bytearray(path.read_bytes())
    end = len(data.rstrip(b"\0")) + 8
    if end + 40 < len(data):
        data[end : end + 12] = b"\x20\0\0\0" + rng.randbytes(8)
        path.write_bytes(data)


def test_a_full_journal_drops_the_oldest_segments_and_counts_the_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage_journal, "MAX_SEGMENTS", 3)
    journal = open_journal(tmp_path)
    for _ in range(100):
        journal.add(b"x" * 100)
    assert journal.lost > 0
    after, entries = journal.entries(0, 1000)
    assert after == 0
    assert journal.lost + len(entries) == 100
    killed(journal)


def test_a_full_disk_keeps_entries_in_memory(tmp_path: Path) -> None:
    (tmp_path / "usage").write_text("no folder")
    journal = open_journal(tmp_path)
    journal.add(b"one")
    assert journal.entries(0, 10)[1] == [b"one"]
    killed(journal)
