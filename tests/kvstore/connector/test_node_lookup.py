"""The local node is queried in the background, within a time limit."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from kvstore.backends.backend import BackendSettings
from kvstore.backends.node_backend import NodeBackend
from kvstore.connector.domain_keys import Domain, DomainKeys
from kvstore.connector.node_lookup import NodeLookup
from kvstore.node.node_manager import NodeManager
from kvstore.tiers.block_facts import BlockFacts, checksum_of
from tests.kvstore.connector.engine_blocks import FORMAT, TOKENS, chain
from tests.kvstore.kv_blocks import KEYRING, a_client, address, node, payload
from tests.patience import wait_until

GONE = "127.0.0.1:1"


@contextmanager
def lookup(at: str, timeout_s: float = 60.0) -> Iterator[NodeLookup]:
    made = NodeLookup(NodeBackend(BackendSettings(address=at, keyring=KEYRING), time.monotonic), timeout_s, FORMAT)
    try:
        yield made
    finally:
        made.close()


def answered(made: NodeLookup, name: str, blocks: int, domain: Domain | None = None) -> int:
    answers: list[int] = []

    def came() -> bool:
        answer = made.blocks(name, domain or Domain(), chain("p", blocks), 0.0)
        if answer is not None:
            answers.append(answer)
        return answer is not None

    wait_until(came)
    return answers[-1]


def put(manager: NodeManager, *positions: int) -> None:
    hashes = chain("p", 4)
    for key in DomainKeys(FORMAT).keys(Domain(), [hashes[position] for position in positions]):
        data = payload(key)
        with a_client() as client:
            client.put(
                address(manager), [(BlockFacts(key, len(data), tokens=TOKENS, checksum=checksum_of(data)), data)]
            )


def test_a_backend_that_times_out_has_no_block() -> None:
    class LateBackend(NodeBackend):
        def exist(self, keys: Sequence[bytes]) -> list[bool]:
            raise TimeoutError(f"{len(keys)} keys")

    made = NodeLookup(
        LateBackend(BackendSettings(address=GONE, keyring=KEYRING), time.monotonic),
        timeout_s=60.0,
        payload_format=FORMAT,
    )
    assert answered(made, "a", 4) == 0
    made.close()


def test_the_lookup_counts_leading_blocks() -> None:
    with node() as manager, lookup(address(manager)) as made:
        put(manager, 0, 1, 3)
        assert answered(made, "a", 4) == 2
        assert answered(made, "b", 1) == 1
        assert answered(made, "c", 4, Domain(salt="s")) == 0


def test_no_request_waits_for_a_node_longer_than_its_limit() -> None:
    """The limit applies at the next call, however close the node's answer is."""
    with node() as manager, lookup(address(manager), timeout_s=0.5) as made, manager.store.lock:
        assert made.blocks("a", Domain(), chain("p", 2), 10.0) is None
        assert made.blocks("a", Domain(), chain("p", 2), 10.4) is None
        assert made.blocks("a", Domain(), chain("p", 2), 10.5) == 0


def test_a_dead_node_has_no_blocks() -> None:
    with lookup(GONE) as made:
        assert answered(made, "a", 2) == 0


def test_ended_requests_are_forgotten() -> None:
    with lookup(GONE) as made:
        made.blocks("a", Domain(), chain("p", 2), 0.0)
        made.forget("a")
        made.forget("unknown")
        assert len(made) == 0
