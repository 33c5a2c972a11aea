"""Requests short scheduler time slices, so that a thread that wakes does not wait for others to use up theirs."""

from __future__ import annotations

import ctypes
import platform
import struct

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
