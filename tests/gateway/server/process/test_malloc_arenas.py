"""Threads share glibc's arenas.

Scheduler time slices, each tested in a separate process because they apply to a thread.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys

import pytest

from gateway.server.process.malloc_arenas import MAX_ARENAS
from gateway.server.process.scheduler_slice import SLICE_S

PROGRAM = """
import ctypes, sys, threading
from gateway.server.process.malloc_arenas import limit_arenas

if sys.argv[1] == "limited":
    limit_arenas()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = (ctypes.c_size_t,)
together = threading.Barrier(8)

def allocate():
    together.wait()
    libc.malloc(100_000)
    together.wait()

threads = [threading.Thread(target=allocate) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
libc.fdopen.restype = ctypes.c_void_p
stream = ctypes.c_void_p(libc.fdopen(1, b"w"))
libc.malloc_info(0, stream)
libc.fflush(stream)
"""


def arenas(mode: str) -> int:
    run = subprocess.run([sys.executable, "-c", PROGRAM, mode], capture_output=True, text=True, check=True)
    return run.stdout.count("<heap nr=")


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_a_limited_process_shares_malloc_arenas_among_threads() -> None:
    assert arenas("limited") <= MAX_ARENAS < arenas("unlimited")


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
