"""Node managers as processes next to real engines, and the calls with which tests use them."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.live.loopback_ports import free_ports
from kvstore.keys.keyring import KV, Keyring
from kvstore.tiers.block_facts import BlockFacts, checksum_of
from kvstore.transfer.connection import PeerError
from kvstore.transfer.frames import ContentsPage, Done, PageOf
from kvstore.transfer.transfer_client import TransferClient, Wanted
from tests.patience import PATIENCE_S, wait_until
from tests.program import ROOT

SECRET = "a secret of real engines and their nodes"


class StoreProcess:
    """One `manage.py node`. Mutable: its process, None while it does not run."""

    def __init__(
        self,
        directory: Path,
        *options: str,
        dram_mib: int = 64,
        ssd_mib: int = 64,
        slot_kib: int = 64,
        **variables: str,
    ) -> None:
        """Describe a node; `options` and environment `variables` extend the defaults."""
        self.port, self.metrics_port = free_ports(2)
        self.address = f"127.0.0.1:{self.port}"
        self.directory = directory
        self.process: subprocess.Popen[bytes] | None = None
        self._sizes = ("--dram-mib", str(dram_mib), "--ssd-mib", str(ssd_mib), "--slot-kib", str(slot_kib), *options)
        self._environment = {**os.environ, "HEADWAY_KV_SECRET": SECRET, **variables}
        self._client = TransferClient(Keyring.of(SECRET.encode(), kind=KV), time.monotonic)

    def start(self) -> None:
        """Start it and wait until it serves."""
        ports = ("--port", str(self.port), "--metrics-port", str(self.metrics_port))
        command = [sys.executable, "manage.py", "node", *self._sizes, *ports, "--directory", str(self.directory)]
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=self._environment, stderr=subprocess.DEVNULL, start_new_session=True
        )
        wait_until(self.serves, "the node does not serve")

    def serves(self) -> bool:
        """Return whether it responds."""
        try:
            return isinstance(self._client.call(self.address, ContentsPage(0, 1)), PageOf)
        except PeerError:
            return False

    def send(self, number: signal.Signals) -> None:
        """Send its process a signal."""
        assert self.process is not None
        self.process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End it, with a drain unless it is killed."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGCONT)
                self.process.send_signal(number)
            self.process.wait(PATIENCE_S)
            self.process = None

    def blocks(self) -> dict[int, BlockFacts]:
        """Return its blocks by routing key, without those that have none."""
        page = self._client.call(self.address, ContentsPage(0, 4096))
        assert isinstance(page, PageOf)
        return {facts.routing_key: facts for facts, _ in page.blocks if facts.routing_key}

    def media(self, keys: Sequence[int]) -> list[list[str]]:
        """Return the tiers that hold the blocks with these routing keys."""
        page = self._client.call(self.address, ContentsPage(0, 4096))
        assert isinstance(page, PageOf)
        by_key: dict[int, list[str]] = {facts.routing_key: [*media] for facts, media in page.blocks}
        return [by_key.get(key, []) for key in keys]

    def count(self) -> int:
        """Return the number of its blocks."""
        page = self._client.call(self.address, ContentsPage(0, 4096))
        assert isinstance(page, PageOf)
        return len(page.blocks)

    def close(self) -> None:
        """Kill it, and close the connections to it."""
        self.end(signal.SIGKILL)
        self._client.close()

    def payload(self, facts: BlockFacts) -> bytes:
        """Return the bytes of a block."""
        (block,) = self._client.get([self.address], [Wanted(facts.key)]).blocks
        assert block is not None
        return bytes(block.payload)

    def put(self, facts: BlockFacts, payload: bytes) -> None:
        """Store bytes under a block's key, as any holder of the secret can."""
        announced = BlockFacts(facts.key, len(payload), facts.chain_hash, b"", facts.tokens, "", checksum_of(payload))
        assert isinstance(self._client.put(self.address, [(announced, memoryview(payload))]), Done)

    def metric(self, name: str) -> float:
        """Return the sum of a metric's series."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        return sum(float(value) for value in re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", text, re.MULTILINE))

    def wait_for_blocks(self, keys: Sequence[int]) -> None:
        """Wait until it holds blocks with all these routing keys."""
        wait_until(lambda: set(keys) <= self.blocks().keys(), f"the node has not got {len(keys)} blocks")


@contextmanager
def cut_after(address: str, size: int, cut: Callable[[], None]) -> Iterator[str]:
    """Relay connections to a node and yield the relay's address; after `size` bytes, call `cut` and relay no more."""
    host, port = address.split(":")
    listener = socket.create_server(("127.0.0.1", 0))

    def relay(client: socket.socket) -> None:
        with contextlib.suppress(OSError), client, socket.create_connection((host, int(port))) as node:
            threading.Thread(target=_forward, args=(client, node), daemon=True).start()
            left = size
            while left and (data := node.recv(min(left, 65_536))):
                client.sendall(data)
                left -= len(data)
            if not left:
                cut()
            # Closing alone does not end the connection for the client while the other thread reads.
            for item in (client, node):
                with contextlib.suppress(OSError):
                    item.shutdown(socket.SHUT_RDWR)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=relay, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.close()


def _forward(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
