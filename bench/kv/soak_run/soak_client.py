"""One client of the nodes, in a separate process that can be killed at any time.

`python -m bench.kv.soak_run.soak_client NAME SEED HISTORY ADDRESS…`; SIGTERM ends it after the current operation.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench.kv.soak_run.history import EVERY_NODE, HistoryWriter, Operation
from bench.kv.soak_run.known_blocks import CHAIN, SHARED, TENANTS, known, shared
from kvstore.keys.keyring import Keyring
from kvstore.tiers.block_facts import CHECKSUM_BYTES, BlockFacts
from kvstore.transfer.connection import PeerError
from kvstore.transfer.frames import (
    Abort,
    Allocate,
    Commit,
    ContentsPage,
    Done,
    Message,
    PageOf,
    Pin,
    Pull,
    Purge,
    Write,
)
from kvstore.transfer.shared_secret import kv_keyring
from kvstore.transfer.transfer_client import TransferClient, TransferSettings, Wanted

_TIMEOUT_S = 3.0
_PAUSE_S = 0.02
"""Pause after a failed operation, so that a node that is down gets few attempts."""
LEASE_S = 1.5
KINDS = {
    "put": 30, "get": 40, "get_anywhere": 8, "pull": 8, "pin": 4, "context_cache": 3, "ephemeral": 2, "damaged": 2,
    "commit": 8, "abort": 4, "leave": 2, "walk": 0.4, "purge": 0.15,
}  # fmt: skip
"""Weight of each operation in the random choice."""


class SoakClient:
    """Executes random operations in sequence. Mutable: the generator, the history, and the number of operations."""

    def __init__(self, name: str, seed: int, history: Path, addresses: Sequence[str], keyring: Keyring) -> None:
        self.stopping = False
        self._name, self._addresses = name, addresses
        self._rng = random.Random(f"{seed} {name}")
        self._history = HistoryWriter(history, name)
        self._done = 0
        self._client = TransferClient(
            keyring, time.monotonic, settings=TransferSettings(timeout_s=_TIMEOUT_S), name=f"soak-{name}"
        )

    def run(self) -> None:
        """Execute operations until `stopping`."""
        kinds, weights = list(KINDS), list(KINDS.values())
        while not self.stopping:
            getattr(self, f"_{self._rng.choices(kinds, weights)[0]}")(self._rng.randrange(len(self._addresses)))
            self._done += 1
        self._client.close()
        self._history.close()

    # Blocks ---------------------------------------------------------------------------------------

    def _put(self, node: int, names: list[str] | None = None, hint: str = "default", pin_s: float = 0.0) -> None:
        names = names or self._some()
        with self._history.noting(Operation("put", node, names)) as operation:
            blocks = [(known(name).facts, memoryview(known(name).payload)) for name in names]
            try:
                answer = self._client.put(self._addresses[node], blocks, hint, pin_s)  # type: ignore[arg-type]
                self._judge(operation, answer)
            except (PeerError, TimeoutError):
                self._broken(operation)

    def _context_cache(self, node: int) -> None:
        self._put(node, hint="context_cache", pin_s=self._rng.uniform(0.5, 20.0))

    def _ephemeral(self, node: int) -> None:
        self._put(node, [f"ephemeral-{self._done}"], hint="ephemeral")

    def _damaged(self, node: int) -> None:
        """Report checksums that do not match the bytes."""
        name = f"damaged-{self._done}"
        facts = msgspec.structs.replace(known(name).facts, checksum=bytes(CHECKSUM_BYTES))
        with self._history.noting(Operation("put", node, [name])) as operation:
            try:
                answer = self._client.put(self._addresses[node], [(facts, memoryview(known(name).payload))])
                self._judge(operation, answer)
            except (PeerError, TimeoutError):
                self._broken(operation)

    def _get(self, node: int, names: list[str] | None = None) -> None:
        if names is None:
            odd = [f"{kind}-{self._rng.randrange(1 + self._done)}" for kind in ("ephemeral", "damaged", "dropped")]
            names = [*self._some(), self._rng.choice(odd)]
        holders = self._addresses if node == EVERY_NODE else [self._addresses[node]]
        into = [memoryview(bytearray(known(name).facts.length)) for name in names]
        with self._history.noting(Operation("get", node, names)) as operation:
            wanted = [Wanted(known(name).facts.key, view) for name, view in zip(names, into, strict=True)]
            got = self._client.get(holders, wanted).blocks
            answered = [(name, block.payload) for name, block in zip(names, got, strict=True) if block is not None]
            operation.hits = [name for name, _ in answered]
            operation.wrong = [name for name, payload in answered if payload != known(name).payload]
            operation.outcome = "done"

    def _get_anywhere(self, _node: int) -> None:
        self._get(EVERY_NODE)

    def _pull(self, node: int) -> None:
        holder = self._rng.randrange(len(self._addresses))
        names = self._some()
        message = Pull(self._addresses[holder], [known(name).facts for name in names], self._rng.randrange(3))
        self._ask(Operation("pull", node, names), message)

    def _pin(self, node: int) -> None:
        names = self._some()
        seconds = self._rng.choice([0.0, 1.0, 10.0])
        self._ask(Operation("pin", node, names), Pin([known(name).facts.key for name in names], seconds))

    def _purge(self, _node: int) -> None:
        tenant = self._rng.choice(TENANTS)
        for node in range(len(self._addresses)):
            self._ask(Operation("purge", node, [], tenant=tenant), Purge(tenant))

    def _walk(self, node: int) -> None:
        """Read a node's list of all its blocks and verify each entry."""
        after, keys = -1, {known(shared(number)).facts.key: shared(number) for number in range(SHARED)}
        while not self.stopping:
            try:
                page = self._client.call(self._addresses[node], ContentsPage(after, 64))
            except PeerError:
                return
            if not isinstance(page, PageOf) or not page.blocks:
                return
            after = page.next_after
            names = [keys[facts.key] for facts, _ in page.blocks if facts.key in keys]
            wrong = [facts for facts, _ in page.blocks if facts.key not in keys or not _agrees(facts, keys[facts.key])]
            if wrong:
                with self._history.noting(Operation("page", node, [])) as operation:
                    operation.wrong = [facts.key.hex() for facts in wrong]
            self._get(node, names)

    # Transactions ---------------------------------------------------------------------------------

    def _commit(self, node: int) -> None:
        names = self._some()
        reused = [name for name in self._some() if name not in names][: self._rng.randrange(3)]
        if (new := self._allocated(node, names, reused)) is not None and self._written(node, new):
            self._ask(Operation("commit", node, new, tx_id=self._tx_id), Commit(self._tx_id))

    def _abort(self, node: int) -> None:
        new = self._allocated(node, [f"dropped-{self._done}"], [])
        if new is not None and (self._rng.random() < 0.3 or self._written(node, new)):
            self._ask(Operation("abort", node, new, tx_id=self._tx_id), Abort(self._tx_id))

    def _leave(self, node: int) -> None:
        """Let the lease expire."""
        if (new := self._allocated(node, [f"dropped-{self._done}"], [])) is not None:
            self._written(node, new)

    @property
    def _tx_id(self) -> str:
        return f"{self._name}-{self._done}"

    def _allocated(self, node: int, names: list[str], reused: list[str]) -> list[str] | None:
        operation = Operation("allocate", node, names, tx_id=self._tx_id, lease_s=LEASE_S)
        keys = [known(name).facts.key for name in reused]
        answer = self._ask(operation, Allocate(self._tx_id, keys, [known(name).facts for name in names], LEASE_S))
        return operation.hits if isinstance(answer, Done) else None

    def _written(self, node: int, names: list[str]) -> bool:
        blocks = [known(name) for name in names]
        message = Write(self._tx_id, [block.facts.key for block in blocks], [block.facts.checksum for block in blocks])
        operation = Operation("write", node, names, tx_id=self._tx_id)
        return isinstance(self._ask(operation, message, [memoryview(block.payload) for block in blocks]), Done)

    # Inner ----------------------------------------------------------------------------------------

    def _some(self) -> list[str]:
        """Return the first blocks of a prompt of one tenant."""
        prompt = self._rng.randrange(SHARED // CHAIN) * CHAIN
        return [shared(prompt + index) for index in range(self._rng.randrange(1, CHAIN + 1))]

    def _ask(self, operation: Operation, message: Message, payload: Sequence[memoryview] = ()) -> object:
        with self._history.noting(operation):
            try:
                answer = self._client.call(self._addresses[operation.node], message, payload)
            except PeerError:
                self._broken(operation)
                return None
            self._judge(operation, answer)
        return answer

    def _judge(self, operation: Operation, answer: object) -> None:
        operation.outcome = "done" if isinstance(answer, Done) else "rejected"
        operation.reason = getattr(answer, "reason", "")
        if isinstance(answer, Done):
            present = set(answer.present)
            operation.hits = [name for name in operation.names if known(name).facts.key not in present]
        # A full node rejects at once; without a pause the client would do nothing else.
        if operation.outcome == "rejected":
            time.sleep(_PAUSE_S / 4)

    def _broken(self, operation: Operation) -> None:
        operation.outcome = "broken"
        time.sleep(_PAUSE_S)


def _agrees(facts: BlockFacts, name: str) -> bool:
    return facts == known(name).facts


def main() -> None:
    """Run one client."""
    name, seed, history, *addresses = sys.argv[1:]
    client = SoakClient(name, int(seed), Path(history), addresses, kv_keyring(os.environ))

    # A flag rather than an exception, so that the current operation ends and is recorded.
    def stop(*_: object) -> None:
        client.stopping = True

    signal.signal(signal.SIGTERM, stop)
    client.run()


if __name__ == "__main__":
    main()
