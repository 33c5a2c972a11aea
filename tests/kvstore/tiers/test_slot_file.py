from __future__ import annotations

import contextlib
import os
import random
import signal
import stat
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstore.tiers.arena import Arena
from kvstore.tiers.block_facts import BlockFacts, checksum_of
from kvstore.tiers.block_header import HEADER_BYTES, BlockHeader, decode_header
from kvstore.tiers.slot_file import SlotFile, SlotFileInUseError
from tests.kvstore.kv_blocks import SLOT, block, facts, payload

SLOTS = 32


def whole_blocks(file: SlotFile) -> dict[int, bytes]:
    """Return slot → key of visible blocks, each verified to be complete."""
    keys = {}
    for slot, header in file.scan():
        if header.stored:
            view = memoryview(bytearray(header.facts.length))
            assert file.read_into(slot, view)
            assert checksum_of(view) == header.facts.checksum, f"slot {slot} is visible and not whole"
            keys[slot] = header.facts.key
    return keys


def put(file: SlotFile, slot: int, name: object, length: int = 1000) -> None:
    facts, data = block(name, length=length)
    file.write(slot, BlockHeader(facts, expires_at=1e12), data)


def test_blocks_survive_the_process(tmp_path: Path) -> None:
    file = SlotFile(tmp_path, SLOTS, SLOT)
    put(file, 0, "a")
    put(file, SLOTS - 1, "b", SLOT)
    file.close()
    file = SlotFile(tmp_path, SLOTS, SLOT)
    assert whole_blocks(file) == {0: block("a")[0].key, SLOTS - 1: block("b")[0].key}
    file.close()


def test_a_slot_is_reused(tmp_path: Path) -> None:
    file = SlotFile(tmp_path, SLOTS, SLOT)
    put(file, 3, "a", SLOT)
    put(file, 3, "b", 10)
    assert whole_blocks(file) == {3: block("b")[0].key}
    assert bytes(payload("a", SLOT)[-64:]) not in (tmp_path / "blocks.kv").read_bytes(), "not even its end is left"
    file.close()


def test_a_released_slot_names_the_tenant_whose_bytes_remain(tmp_path: Path) -> None:
    file = SlotFile(tmp_path, SLOTS, SLOT)
    put(file, 3, "a")
    file.release(3, BlockHeader(block("a")[0]))
    assert [(slot, header.stored, header.facts.tenant) for slot, header in file.scan()] == [(3, False, "acme")]
    file.close()


def test_scrubbing_leaves_no_byte(tmp_path: Path) -> None:
    file = SlotFile(tmp_path, SLOTS, SLOT)
    put(file, 3, "a")
    assert bytes(payload("a")[:64]) in (tmp_path / "blocks.kv").read_bytes()
    file.scrub(3)
    assert bytes(payload("a")[:64]) not in (tmp_path / "blocks.kv").read_bytes()
    assert list(file.scan()) == []
    file.close()


def test_scrubbing_writes_only_previously_written_ranges(tmp_path: Path) -> None:
    file, path = SlotFile(tmp_path, SLOTS, 16 * SLOT), tmp_path / "blocks.kv"
    put(file, SLOTS - 1, "a", 16 * SLOT)
    put(file, 2, "b")
    taken = path.stat().st_blocks
    for slot in range(SLOTS):
        file.scrub(slot)
    assert path.stat().st_blocks == taken, "on a full disk it would have failed"
    assert not any(path.read_bytes()[4096:])
    file.close()


def test_only_the_owner_can_read_the_file(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        file = SlotFile(tmp_path / "tier", SLOTS, SLOT)
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "tier" / "blocks.kv").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "tier").stat().st_mode) == 0o700
    file.close()


def test_two_nodes_cannot_share_the_file(tmp_path: Path) -> None:
    file = SlotFile(tmp_path, SLOTS, SLOT)
    with pytest.raises(SlotFileInUseError, match="another node"):
        SlotFile(tmp_path, SLOTS, SLOT)
    file.close()


def test_different_sizes_start_an_empty_file(tmp_path: Path) -> None:
    file = SlotFile(tmp_path, SLOTS, SLOT)
    put(file, 3, "a")
    file.close()
    file = SlotFile(tmp_path, SLOTS, 2 * SLOT)
    assert whole_blocks(file) == {}
    file.close()


@pytest.mark.parametrize("seed", range(5))
def test_flipped_bytes_never_return_a_wrong_block(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    file = SlotFile(tmp_path, SLOTS, SLOT)
    for slot in range(SLOTS):
        put(file, slot, slot, SLOT)
    path = tmp_path / "blocks.kv"
    damaged = bytearray(path.read_bytes())
    for _ in range(200):
        damaged[rng.randrange(4096, len(damaged))] ^= 1 << rng.randrange(8)
    path.write_bytes(damaged)
    right = wrong = 0
    for slot, header in file.scan():
        view = memoryview(bytearray(header.facts.length))
        if file.read_into(slot, view) and checksum_of(view) == header.facts.checksum:
            assert bytes(view) == bytes(payload(slot, SLOT))
            right += 1
        else:
            wrong += 1
    assert wrong > 0
    assert right + wrong < SLOTS
    file.close()


@pytest.mark.parametrize("length", [1, 700, SLOT])
def test_a_write_cut_off_at_any_byte_leaves_the_old_block_the_new_one_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    file, pwrite = SlotFile(tmp_path, 2, SLOT), os.pwrite
    old, new = block("old", length=700)[0].key, block("new", length=length)[0].key
    left = [0]

    def cut(descriptor: int, data: bytes | memoryview, begin: int) -> int:
        written = pwrite(descriptor, data[: left[0]], begin)
        left[0] -= written
        if not written:
            raise OSError(28, "No space left on device")
        return written

    seen = set()
    total = 2 * HEADER_BYTES + max(length, 700)
    for end in sorted({*range(0, total, 61), *range(2 * HEADER_BYTES), *range(total - HEADER_BYTES, total + 1)}):
        put(file, 0, "old", 700)
        left[0] = end
        with monkeypatch.context() as patched, contextlib.suppress(OSError):
            patched.setattr(os, "pwrite", cut)
            put(file, 0, "new", length)
        whole = whole_blocks(file)
        assert whole in ({}, {0: old}, {0: new})
        seen |= set(whole.values())
    assert seen == {old, new}
    file.close()


def test_an_unfinished_write_is_overwritten_at_the_next_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, pwrite, writes = SlotFile(tmp_path, 2, SLOT), os.pwrite, []

    def cut(descriptor: int, data: bytes | memoryview, begin: int) -> int:
        writes.append(begin)
        if len(writes) > 2:
            raise OSError(5, "Input/output error")
        return pwrite(descriptor, data[:500], begin)

    put(file, 0, "old", SLOT)
    with monkeypatch.context() as patched, contextlib.suppress(OSError):
        patched.setattr(os, "pwrite", cut)
        put(file, 0, "new", SLOT)
    file.close()
    file = SlotFile(tmp_path, 2, SLOT)
    assert list(file.scan()) == []
    kept = (tmp_path / "blocks.kv").read_bytes()
    assert bytes(payload("new", SLOT)[:64]) not in kept
    assert bytes(payload("old", SLOT)[-64:]) not in kept
    file.close()


WRITER = textwrap.dedent(
    """
    import itertools, random, resource, sys
    from pathlib import Path
    from kvstore.tiers.block_header import BlockHeader
    from kvstore.tiers.slot_file import SlotFile
    from tests.kvstore.kv_blocks import SLOT, block

    limit, rng = int(sys.argv[2]), random.Random(sys.argv[3])
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    file = SlotFile(Path(sys.argv[1]), 32, SLOT)
    print("ready", flush=True)
    failed = 0
    for number in itertools.count() if not limit else range(200):
        slot, length = rng.randrange(32), rng.randrange(1, SLOT)
        facts, data = block(number, length=length)
        try:
            if rng.random() < 0.2:
                file.release(slot, BlockHeader(facts))
            file.write(slot, BlockHeader(facts, expires_at=1e12), data)
        except OSError:
            failed += 1
    print(failed, flush=True)
    """
)


def writer(directory: Path, limit: int, seed: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", WRITER, str(directory), str(limit), str(seed)]
    return subprocess.Popen(command, cwd=Path(__file__).parents[3], stdout=subprocess.PIPE)


@pytest.mark.processes
def test_a_kill_at_any_moment_leaves_only_complete_blocks(tmp_path: Path) -> None:
    rng = random.Random(5)
    seen = 0
    for seed in range(8):
        process = writer(tmp_path, 0, seed)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        time.sleep(rng.uniform(0.0, 0.05))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        file = SlotFile(tmp_path, SLOTS, SLOT)
        seen += len(whole_blocks(file))
        file.close()
    assert seen > SLOTS


@pytest.mark.processes
@pytest.mark.parametrize("seed", range(3))
def test_a_file_that_cannot_grow_leaves_only_complete_blocks(tmp_path: Path, seed: int) -> None:
    # The limit is within the payload of a slot in the middle: writes before it succeed, one is cut, others fail.
    limit = 4096 + SLOTS * 256 + 4096 + 15 * SLOT + 700
    out, _ = writer(tmp_path, limit, seed).communicate(timeout=60)
    assert int(out.split()[1]) > 0
    file = SlotFile(tmp_path, SLOTS, SLOT)
    assert 0 < len(whole_blocks(file)) < SLOTS
    file.close()


def test_slots_do_not_overlap_and_a_shorter_block_leaves_no_bytes_of_a_longer_one() -> None:
    arena = Arena(3, 4096)
    for slot in range(3):
        arena.claim(slot, 4096)[:] = bytes([slot + 1]) * 4096
    arena.claim(1, 10)[:] = b"x" * 10
    assert bytes(arena.view(0, 4096)) == b"\x01" * 4096
    assert bytes(arena.view(1, 4096)) == b"x" * 10 + bytes(4086)
    assert bytes(arena.view(2, 4096)) == b"\x03" * 4096
    arena.scrub(2)
    assert not any(arena.view(2, 4096))
    arena.close()


FACTS = st.builds(
    BlockFacts,
    key=st.binary(min_size=32, max_size=32),
    length=st.integers(1, SLOT),
    chain_hash=st.binary(max_size=32),
    parent=st.just(b"") | st.binary(min_size=32, max_size=32).filter(any),
    tokens=st.integers(0, (1 << 32) - 1),
    tenant=st.text(max_size=16),
    checksum=st.binary(min_size=16, max_size=16),
).filter(lambda item: not item.fault(SLOT))
HEADERS = st.builds(
    BlockHeader,
    FACTS,
    st.booleans(),
    st.integers(0, (1 << 64) - 1),
    st.integers(0, (1 << 64) - 1),
    st.floats(0, 1e12),
    st.floats(0, 1e12),
)


@given(HEADERS)
def test_a_header_round_trips_through_the_disk(header: BlockHeader) -> None:
    data = header.encode()
    assert len(data) == HEADER_BYTES
    assert decode_header(data, SLOT) == header


@given(HEADERS, st.integers(0, 240), st.integers(1, 255))
def test_a_changed_byte_invalidates_a_header(header: BlockHeader, offset: int, change: int) -> None:
    data = bytearray(header.encode())
    data[offset] ^= change
    assert decode_header(bytes(data), SLOT) is None


@given(st.binary(max_size=2 * HEADER_BYTES))
def test_garbage_is_not_a_header(data: bytes) -> None:
    assert decode_header(data, SLOT) is None


def test_a_header_with_a_block_longer_than_its_slot_is_rejected() -> None:
    assert decode_header(BlockHeader(facts("a", length=SLOT)).encode(), SLOT - 1) is None
