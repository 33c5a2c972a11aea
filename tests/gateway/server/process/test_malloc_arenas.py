"""Threads share glibc's arenas."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gateway.server.process.malloc_arenas import MAX_ARENAS

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
