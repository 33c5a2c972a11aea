"""Table of backends, from their names to their constructors."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kvstore.backends.backend import BackendSettings, KvBackend
from kvstore.backends.mooncake_backend import MooncakeBackend
from kvstore.backends.node_backend import NodeBackend

BACKENDS: Mapping[str, Callable[[BackendSettings, Callable[[], float]], KvBackend]] = {
    "node": NodeBackend,
    "mooncake": MooncakeBackend,
}
"""Each takes settings and a monotonic clock."""
