"""Time until a gateway knows the contents of node managers: `python -m bench.kv.follow [--nodes 8] [--blocks 100000]`.

The nodes run in this process, so they share its CPU with the gateway's followers, unlike over a network. During that
time, requests wait for as long as the CPU time of the event loop's longest iteration.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import socket
import sys
import time
from contextlib import ExitStack

from gateway.base.metrics import GatewayMetrics
from gateway.contracts.snapshot import KvNodeEntry
from gateway.kv.nodes.kv_nodes import KvNodes
from kvstore.keys.keyring import KV, Keyring
from kvstore.node.node_manager import NodeManager, NodeSettings
from kvstore.tiers.block_facts import BlockFacts, checksum_of
from kvstore.transactions.catalog_settings import CatalogSettings
from kvstore.transfer.shared_secret import NodeAccess
from kvstore.transfer.transfer_client import TransferClient

KEYRING = Keyring.of(b"a secret for this bench only", kind=KV)
SLOT_BYTES = 64
_PUT = 1024
_LIMIT_S = 120.0


def main() -> int:
    """Print the seconds until all nodes are followed, and the CPU time of the loop's longest iteration."""
    parser = argparse.ArgumentParser(prog="python -m bench.kv.follow", description=__doc__)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--blocks", type=int, default=100_000)
    options = parser.parse_args()
    per_node = options.blocks // options.nodes
    with ExitStack() as stack:
        entries = [_filled(stack, f"n{number}", number * per_node, per_node) for number in range(options.nodes)]
        complete_s, turn_s = asyncio.run(_follow(entries, per_node * options.nodes))
    print(f"{options.nodes} nodes, {per_node * options.nodes:,} blocks: complete after {complete_s:.2f} s, ", end="")
    print(f"{1000 * turn_s:.1f} ms of CPU in the longest turn of the event loop")
    return 0


def _filled(stack: ExitStack, name: str, first: int, count: int) -> KvNodeEntry:
    """Start a node that holds this many blocks."""
    events_port, replay_port = _free_ports(2)
    catalog = CatalogSettings(
        dram_slots=count, ssd_slots=0, slot_bytes=SLOT_BYTES, tenant_quota_bytes=1 << 40, pin_quota_bytes=1 << 40
    )
    manager = NodeManager(
        NodeSettings(
            node_id=name,
            keyring=KEYRING,
            catalog=catalog,
            events_port=events_port,
            replay_port=replay_port,
            drain_s=1.0,
        )
    )
    manager.start()
    stack.callback(manager.stop)
    client, where = TransferClient(KEYRING, time.monotonic), f"127.0.0.1:{manager.port}"
    stack.callback(client.close)
    for begin in range(first, first + count, _PUT):
        client.put(where, [_block(number + 1) for number in range(begin, min(begin + _PUT, first + count))])
    return KvNodeEntry(
        name=name,
        address=where,
        events_endpoint=f"tcp://127.0.0.1:{events_port}",
        replay_endpoint=f"tcp://127.0.0.1:{replay_port}",
        slot_bytes=SLOT_BYTES,
    )


def _block(number: int) -> tuple[BlockFacts, memoryview]:
    key = hashlib.sha256(number.to_bytes(8, "big")).digest()
    data = memoryview(key)
    return BlockFacts(key, len(data), key, b"", 16, "bench", checksum_of(data), number), data


async def _follow(entries: list[KvNodeEntry], blocks: int) -> tuple[float, float]:
    nodes, began, longest_s = KvNodes(NodeAccess(KEYRING), GatewayMetrics()), time.perf_counter(), 0.0
    nodes.apply(entries)
    try:
        while not all(nodes.holdings.is_readable(entry.name) for entry in entries):
            if time.perf_counter() - began > _LIMIT_S:
                raise TimeoutError(f"nodes are not followed after {_LIMIT_S:.0f} s")
            before = time.thread_time()
            await asyncio.sleep(0)
            longest_s = max(longest_s, time.thread_time() - before)
        took_s = time.perf_counter() - began
        if len(nodes.holdings) != blocks:
            raise RuntimeError(f"{len(nodes.holdings)} blocks are known of {blocks}")
    finally:
        await nodes.stop()
    return took_s, longest_s


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for item in sockets:
            item.bind(("127.0.0.1", 0))
        return [item.getsockname()[1] for item in sockets]
    finally:
        for item in sockets:
            item.close()


if __name__ == "__main__":
    sys.exit(main())
