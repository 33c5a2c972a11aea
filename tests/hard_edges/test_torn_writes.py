"""R42: after a kill in any step of a write, or on a full disk, the stored data is complete: the old or the new one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parents[2]

KILLED_AT_EVERY_LINE = """
import json, os, signal, sys
from pathlib import Path
directory, files = Path(sys.argv[1]), sys.argv[2].split(",")

def killed_at(step, work):
    # Runs `work` in a child that SIGKILL ends before its step-th line; returns False where the work completed.
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
    loaded = store.load(0.0)
    seen.append((step + 1, -1 if loaded is None else loaded.version))
    step += 1
loaded = store.load(0.0)
left = [path.name for path in directory.iterdir()]
print(json.dumps({"seen": seen, "last": [step + 1, loaded.version], "left": left}))
"""

SEGMENTS = """
from django.core.management import call_command
from django.db import connection
from controlplane.request_log.models.decision_index import DecisionIndex
from controlplane.request_log.models.segment import Segment
from controlplane.request_log.store.segments import store
from tests.controlplane.request_log.store.records import START, batch, on_time
call_command("migrate", verbosity=0)
step, wrong, kept = 0, [], set()

def write():
    store([batch([on_time(f"d-{number:06}", START + number) for number in (2 * step, 2 * step + 1)], str(step))])

def readable():
    rows = list(DecisionIndex.objects.values_list("decision_id", "segment__batch"))
    segments = set(Segment.objects.values_list("batch", flat=True))
    connection.close()
    stored = {(int(name.removeprefix("d-")) // 2, int(batch)) for name, batch in rows}
    whole = len(rows) == 2 * len(segments) and stored == {(int(name), int(name)) for name in segments}
    return {step for step, _ in stored}, whole

connection.close()
while killed_at(step, write):
    steps, whole = readable()
    if not whole or not kept <= steps:
        wrong.append(step)
    kept = steps
    step += 1
print(json.dumps({"steps": step, "wrong": wrong, "last": step in readable()[0]}))
"""

MERGES = """
from django.core.management import call_command
from django.db import connection
from controlplane.request_log.models.decision_index import DecisionIndex
from controlplane.request_log.models.segment import MergedBatches, Retention, Segment
from controlplane.request_log.store.merging import merge_small
from controlplane.request_log.store.segments import StoredCounts, read_decision, recorded_traffic, store
from gateway.contracts.request_batch import encode_batch, pack_row, request_batch
from tests.controlplane.request_log.recordings.traffic import row
from tests.controlplane.request_log.store.records import START, on_time
call_command("migrate", verbosity=0)
seconds = (0, 1, 2, 90)
batches = [
    encode_batch(request_batch(f"gateway-{n}", [pack_row(row(n))], [on_time(f"d-{n}", START + n)])) for n in seconds
]

def prepare():
    Segment.objects.all().delete()
    MergedBatches.objects.all().delete()
    store(batches)
    for n in seconds:
        Segment.objects.filter(batch=f"gateway-{n}").update(at_ms=int((START + n) * 1000))
    connection.close()

def merge():
    for retention in (Retention.TRAFFIC, Retention.DECISIONS):
        merge_small(retention, 0, int((START + 90) * 1000))

def whole():
    rows = list(DecisionIndex.objects.order_by("decision_id"))
    records = [read_decision(row).decision.decision_id for row in rows]
    arrivals = [entry.arrived_at - START for entry in recorded_traffic(START, START + 100)]
    again = store(batches)
    left = Segment.objects.filter(merged_at_ms=None).count()
    connection.close()
    return records == [f"d-{n}" for n in seconds] and arrivals == list(seconds) and again == StoredCounts(), left

step, wrong, states = 0, [], set()
prepare()
while killed_at(step, merge):
    right, left = whole()
    states.add(left)
    if not right:
        wrong.append(step)
    prepare()
    step += 1
print(json.dumps({"steps": step, "wrong": wrong, "states": sorted(states), "last": whole()}))
"""

FULL_DISK = """
import json, resource, sys
from pathlib import Path
from django.conf import settings
from django.core.management import call_command
from django.db import DatabaseError
from controlplane.request_log.models.decision_index import DecisionIndex
from controlplane.request_log.models.segment import Segment
from controlplane.request_log.store.segments import store
from gateway.contracts.snapshot import PoolEntry, Snapshot
from gateway.bus.snapshot_store import SnapshotStore
from tests.controlplane.request_log.store.records import START, batch, on_time
call_command("migrate", verbosity=0)

def many(begin):
    return batch([on_time(f"d-{number:06}", START + number) for number in range(begin, begin + 8)], str(begin))

directory = Path(sys.argv[1])
snapshots = SnapshotStore(directory / "snapshot", 1e9)
snapshots.save(Snapshot(version=1, published_at=0.0), 0.0)
wal = max(path.stat().st_size for path in settings.STATE_DIR.glob("*.sqlite3-wal"))
stored = rejected = 0
resource.setrlimit(resource.RLIMIT_FSIZE, (4000, resource.RLIM_INFINITY))
pools = tuple(PoolEntry(pool_id=str(n) * 90, name="p", region="r", served_model="m") for n in range(100))
try:
    snapshots.save(Snapshot(version=2, published_at=0.0, pools=pools), 0.0)
    saved = True
except OSError:
    saved = False
resource.setrlimit(resource.RLIMIT_FSIZE, (wal + 500_000, resource.RLIM_INFINITY))
for number in range(400):
    try:
        stored += store([many(8 * number)]).decisions
    except DatabaseError:
        rejected += 1
indexed, segments = DecisionIndex.objects.count(), Segment.objects.count()
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
store([many(9000)])
print(json.dumps({"stored": stored, "rejected": rejected, "indexed": indexed, "segments": segments,
    "saved": saved, "version": snapshots.load(0.0).version, "files": len(list((directory / "snapshot").iterdir())),
    "after": DecisionIndex.objects.count()}))
"""


def run_program(program: str, *arguments: str) -> dict[str, object]:
    """Run the program in a separate process and return the JSON that it prints."""
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "controlplane.project.settings",
        "PYTHONPATH": str(ROOT),
        "HEADWAY_STATE_DIR": f"{arguments[0]}-state",
        "DATABASE_URL": "",
    }
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


def test_kill_while_saving_a_snapshot_leaves_the_old_or_the_new_one(tmp_path: Path) -> None:
    result = run_program(KILLED_AT_EVERY_LINE + SNAPSHOTS, str(tmp_path), "snapshot_store.py")
    seen = result["seen"]
    assert isinstance(seen, list)
    assert len(seen) >= 10
    newest = 0
    for written, version in seen:
        assert version in (newest, written), seen
        newest = version
    assert newest > 0, "the last steps come after the new one is in its place"
    last = result["last"]
    assert isinstance(last, list)
    assert last[0] == last[1]
    assert result["left"] == ["last-known-good.snapshot"], "what the killed left behind is gone"


def test_kill_while_storing_decisions_leaves_complete_batches_only(tmp_path: Path) -> None:
    result = run_program(KILLED_AT_EVERY_LINE + SEGMENTS, str(tmp_path), "store/segments.py,db/transaction.py")
    assert isinstance(result["steps"], int)
    assert result["steps"] >= 15
    assert result["wrong"] == []
    assert result["last"]


def test_kill_while_merging_segments_loses_and_duplicates_nothing(tmp_path: Path) -> None:
    result = run_program(KILLED_AT_EVERY_LINE + MERGES, str(tmp_path), "store/merging.py,store/merged_batches.py")
    assert isinstance(result["steps"], int)
    assert result["steps"] >= 60
    assert result["wrong"] == []
    assert result["states"] == [4, 6, 8], "of each class four segments, or two after its merge"
    assert result["last"] == [True, 4]


def test_full_disk_rejects_new_data_and_leaves_no_partial_write(tmp_path: Path) -> None:
    result = run_program(FULL_DISK, str(tmp_path))
    assert result["rejected"]
    assert result["indexed"] == result["stored"] != 0
    assert result["segments"] == result["stored"] // 8  # type: ignore[operator]
    assert (result["saved"], result["version"], result["files"]) == (False, 1, 1)
    assert result["after"] == result["stored"] + 8  # type: ignore[operator]
