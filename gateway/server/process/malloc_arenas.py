"""Sets two options of glibc's allocator: the number of arenas, and which blocks get a mapping."""

from __future__ import annotations

import ctypes

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
