"""R42: killed in any step of a write, or with a full disk, what is found afterwards is whole, old or new."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parents[2]

KILLED_AT_EACH_LINE = """
import json, os, signal, sys
from pathlib import Path
directory, files = Path(sys.argv[1]), sys.argv[2].split(",")

def killed_at(step, work):
    # Runs `work` in a child that is killed as by kill -9 before its step-th line; False: it came to its end.
    assert step < 1000, "what the killed left behind makes the work longer each time"
    child = os.fork()
    if not child:
        left = step
        def trace(frame, event, _argument):
            nonlocal left
            if not frame.f_code.co_filename.endswith(tuple(files)):
                return None
            if event == "line":
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
            return trace
        sys.settrace(trace)
        work()
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])
"""

SNAPSHOTS = """
from gateway.contracts.snapshot import Snapshot
from gateway.bus.snapshot_store import FILE_NAME, SnapshotStore
store, seen, step = SnapshotStore(directory, 1e9), [], 0
store.save(Snapshot(version=0, published_at=0.0), 0.0)
while killed_at(step, lambda: store.save(Snapshot(version=step + 1, published_at=0.0), 0.0)):
    found = store.load(0.0)
    seen.append((step + 1, -1 if found is None else found.version))
    step += 1
found = store.load(0.0)
left = [each.name for each in directory.iterdir()]
print(json.dumps({"seen": seen, "last": [step + 1, found.version], "left": left}))
"""

SEGMENTS = """
from controlplane.decision_store.segment import frames
from controlplane.decision_store.shelf import SegmentShelf
from tests.controlplane.decision_store.records import START, on_time
step, wrong, kept = 0, [], set()

def many(count, begin):
    return [on_time(f"d-{number:06}", START + number) for number in range(begin, begin + count)]

def write():
    SegmentShelf(directory, 1 << 20).append(many(2, 2 * step))

def readable():
    shelf = SegmentShelf(directory, 1 << 20)
    found = {d.decision.decision_id for name in shelf.names() for _, part in frames(shelf.path(name)) for d in part}
    return {int(name.removeprefix("d-")) // 2 for name in found}, found

while killed_at(step, write):
    steps, found = readable()
    if len(found) != 2 * len(steps) or not kept <= steps:
        wrong.append(step)
    kept = steps
    step += 1
print(json.dumps({"steps": step, "wrong": wrong, "last": step in readable()[0]}))
"""

FULL_DISK = """
import json, resource, sys
from pathlib import Path
from controlplane.decision_store.segment import frames
from controlplane.decision_store.shelf import SegmentShelf
from gateway.contracts.snapshot import PoolEntry, Snapshot
from gateway.bus.snapshot_store import SnapshotStore
from tests.controlplane.decision_store.records import START, on_time
def many(count, begin):
    return [on_time(f"d-{number:06}", START + number) for number in range(begin, begin + count)]

directory = Path(sys.argv[1])
store = SnapshotStore(directory / "snapshot", 1e9)
store.save(Snapshot(version=1, published_at=0.0), 0.0)
shelf, stored, refused = SegmentShelf(directory / "segments", 1 << 20), 0, 0
resource.setrlimit(resource.RLIMIT_FSIZE, (4000, resource.RLIM_INFINITY))
for number in range(40):
    try:
        shelf.append(many(8, 8 * number))
        stored += 8
    except OSError:
        refused += 1
pools = tuple(PoolEntry(pool_id=str(n) * 90, name="p", region="r", served_model="m") for n in range(100))
try:
    store.save(Snapshot(version=2, published_at=0.0, pools=pools), 0.0)
    saved = True
except OSError:
    saved = False
found = [d for name in shelf.names() for _, part in frames(shelf.path(name)) for d in part]
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
shelf.append(many(8, 900))
after = sum(len(part) for name in shelf.names() for _, part in frames(shelf.path(name)))
print(json.dumps({"stored": stored, "refused": refused, "found": len(found), "segments": len(shelf.names()),
    "saved": saved, "version": store.load(0.0).version, "files": len(list((directory / "snapshot").iterdir())),
    "after": after}))
"""


def told(program: str, *arguments: str) -> dict[str, object]:
    """Run the program in a process of its own and return what it tells."""
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "controlplane.settings", "PYTHONPATH": str(ROOT)}
    program = "import django; django.setup()\n" + program
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def test_a_kill_in_any_step_of_saving_a_snapshot_leaves_the_old_one_or_the_new_one(tmp_path: Path) -> None:
    found = told(KILLED_AT_EACH_LINE + SNAPSHOTS, str(tmp_path), "snapshot_store.py")
    seen = found["seen"]
    assert isinstance(seen, list)
    assert len(seen) >= 10
    newest = 0
    for written, version in seen:
        assert version in (newest, written), seen
        newest = version
    assert newest > 0, "the last steps come after the new one is in its place"
    last = found["last"]
    assert isinstance(last, list)
    assert last[0] == last[1]
    assert found["left"] == ["last-known-good.snapshot"], "what the killed left behind is gone"


def test_a_kill_in_any_step_of_writing_decisions_leaves_whole_frames_only(tmp_path: Path) -> None:
    found = told(KILLED_AT_EACH_LINE + SEGMENTS, str(tmp_path), "shelf.py,segment.py,frames.py")
    assert isinstance(found["steps"], int)
    assert found["steps"] >= 15
    assert found["wrong"] == []
    assert found["last"]


def test_a_full_disk_costs_what_is_new_and_leaves_nothing_half_written(tmp_path: Path) -> None:
    found = told(FULL_DISK, str(tmp_path))
    assert found["refused"]
    assert found["found"] == found["stored"] != 0
    assert found["segments"] == 1, "no new segment at each attempt"
    assert (found["saved"], found["version"], found["files"]) == (False, 1, 1)
    assert found["after"] == found["stored"] + 8  # type: ignore[operator]
