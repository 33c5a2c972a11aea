"""Scheduler time slices, each tested in a separate process because they apply to a thread."""

from __future__ import annotations

import json
import platform
import subprocess
import sys

from gateway.server.process.scheduler_slice import SLICE_S

_ASK = """
import json, os, threading
from gateway.server.process.scheduler_slice import slice_s, use_short_slices
{before}
seen = [use_short_slices(), slice_s()]
thread = threading.Thread(target=lambda: seen.append(slice_s()))
thread.start()
thread.join()
print(json.dumps(seen))
"""


def _asked(before: str = "") -> list[float | bool]:
    done = subprocess.run([sys.executable, "-c", _ASK.format(before=before)], capture_output=True, check=True)
    slices: list[float | bool] = json.loads(done.stdout)
    return slices


def test_a_process_and_its_threads_get_the_requested_slice_if_the_kernel_supports_it() -> None:
    taken, own, of_thread = _asked()
    release = tuple(int(part) for part in platform.release().split("-")[0].split(".")[:2])
    if release >= (6, 12) and platform.machine() in ("x86_64", "aarch64"):
        assert taken is True
    assert (own == SLICE_S) is taken
    assert of_thread == own


def test_a_scheduling_policy_set_by_an_operator_is_kept() -> None:
    taken, *_ = _asked("os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))")
    assert taken is False
