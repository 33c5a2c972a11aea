"""Settings of a serving process: garbage collection after its start, glibc's arenas and mappings, and short scheduler
time slices, so that a thread that wakes does not wait for others to use up theirs.
"""

from __future__ import annotations

import ctypes
import gc
import platform
import struct

YOUNG = 20_000
"""Objects allocated and not freed between two collections of the young generation. A request leaves mostly objects
without cycles, which are freed by reference counts; Python's default of 700 would scan them after every few requests.
"""
MIDDLE, OLD = 20, 50
"""Collections of one generation between two of the next."""


def settle_heap() -> None:
    """Exclude the objects of the start from later collections, and set the collection intervals of a server."""
    # Frozen garbage would never be freed.
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)


MAX_ARENAS = 2
MAPPED_BYTES = 4 * 1024 * 1024
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
"""glibc's option numbers, from malloc.h."""


def limit_arenas() -> None:
    """Let all threads share two arenas. Call it before threads start. No effect without glibc.

    Memory freed in one arena is not reused in another, and by default each of the many threads (jobs, database, DNS)
    can open its own. In two hours of the demo, resident memory then grew by 0.12 MB a minute, and by 0.08 with two
    arenas (`python -m bench.installation.memory`).
    """
    _set(_M_ARENA_MAX, MAX_ARENAS)


def map_large_blocks() -> None:
    """Let blocks over MAPPED_BYTES grow without being copied. No effect without glibc.

    A mapping grows by a change of the page table. By default, glibc maps only blocks over 32 MiB once one of them was
    freed. To grow a body or a text beyond that would block the event loop for 20 ms or more.
    """
    _set(_M_MMAP_THRESHOLD, MAPPED_BYTES)
    # As glibc does when it moves the threshold by itself.
    _set(_M_TRIM_THRESHOLD, 2 * MAPPED_BYTES)


def _set(option: int, value: int) -> None:
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(option, value)


SLICE_S = 0.0002
"""About the time of a decision. The kernel's default slice is some milliseconds."""
_CALLS = {"x86_64": (315, 314), "aarch64": (275, 274)}
"""sched_getattr and sched_setattr, for which the C library has no functions."""
_ATTRIBUTES = struct.Struct("=IIQiIQQQII")
_POLICY, _RUNTIME = 1, 5
_SCHED_OTHER = 0


def use_short_slices() -> bool:
    """Set short slices for this thread and those that it starts. Return False if the kernel does not support them
    (before 6.12).
    """
    attributes = _attributes()
    # An operator may have chosen another policy for it.
    if attributes is None or attributes[_POLICY] != _SCHED_OTHER:
        return False
    attributes[_RUNTIME] = int(SLICE_S * 1e9)
    wanted = ctypes.create_string_buffer(_ATTRIBUTES.pack(*attributes), _ATTRIBUTES.size)
    _, write = _CALLS[platform.machine()]
    return ctypes.CDLL(None).syscall(write, 0, wanted, 0) == 0 and slice_s() == SLICE_S


def slice_s() -> float:
    """Return this thread's slice in seconds, 0 if the kernel does not report it."""
    attributes = _attributes()
    return 0.0 if attributes is None else attributes[_RUNTIME] / 1e9


def _attributes() -> list[int] | None:
    """Return this thread's scheduling attributes, None if they cannot be read."""
    calls = _CALLS.get(platform.machine())
    now = ctypes.create_string_buffer(_ATTRIBUTES.size)
    if calls is None or ctypes.CDLL(None).syscall(calls[0], 0, now, _ATTRIBUTES.size, 0) != 0:
        return None
    return list(_ATTRIBUTES.unpack(now.raw))
