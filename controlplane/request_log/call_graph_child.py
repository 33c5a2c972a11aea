"""The child process that learns the call graph from the request log: {"hours": ...} in, a CallGraph out."""

from __future__ import annotations

import os
import sys
import time

import django
import msgspec

from simulator.child_task import OnShare, serve_task


def graph_of(task: bytes, _progress: OnShare) -> object:
    """Return the graph of the last hours."""
    # Here, because models can be imported only after Django's set-up.
    from controlplane.request_log.call_graph import recorded_call_graph

    now = time.time()
    return recorded_call_graph(now - 3600 * msgspec.json.decode(task)["hours"], now + 1)


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.project.settings")
    django.setup()
    sys.exit(serve_task(sys.argv[1:], graph_of))
