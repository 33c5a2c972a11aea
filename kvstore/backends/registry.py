"""Table of backends: names and constructors."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kvstore.backends.backend import BackendSettings, KvBackend
from kvstore.backends.mooncake_backend import MooncakeBackend
from kvstore.backends.node_backend import NodeBackend

BACKENDS: Mapping[str, Callable[[BackendSettings, Callable[[], float]], KvBackend]] = {
    "node": NodeBackend,
    "mooncake": MooncakeBackend,
}
"""Constructors that take settings and a monotonic clock."""
