"""A child process that sums the numbers of its task: quickly, with an error, or never."""

from __future__ import annotations

import os
import sys
import time

import msgspec

from simulator.child_task import OnShare, serve_task


def total(task: bytes, progress: OnShare) -> int:
    """Return the sum of `numbers`. It is never computed if `slow`."""
    fields = msgspec.json.decode(task)
    progress(0.5)
    while fields.get("slow"):
        time.sleep(0.1)
    if fields.get("dies"):
        os._exit(3)
    if not fields["numbers"]:
        raise ValueError("no numbers")
    return sum(fields["numbers"])


if __name__ == "__main__":
    sys.exit(serve_task(sys.argv[1:], total, (ValueError,)))
