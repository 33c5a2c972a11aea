"""A private local hub for a test, in place of a Redis server."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gateway.bus.local_hub import LocalHub, hub_url


class PrivateHub:
    """One hub in a thread of this process; a kill discards its contents."""

    def __init__(self, path: Path) -> None:
        self.url = hub_url(path)
        self._path = path
        self._hub: LocalHub | None = None

    def start(self) -> None:
        """Start the hub, and return once it listens."""
        self._hub = LocalHub(self._path)
        self._hub.start()

    def kill(self) -> None:
        """Stop the hub with all its connections."""
        if self._hub is not None:
            self._hub.stop()
            self._hub = None


@contextmanager
def private_hub() -> Iterator[PrivateHub]:
    """Run a hub for the block, at a path short enough for a socket."""
    with tempfile.TemporaryDirectory() as directory:
        hub = PrivateHub(Path(directory) / "bus.sock")
        hub.start()
        try:
            yield hub
        finally:
            hub.kill()
