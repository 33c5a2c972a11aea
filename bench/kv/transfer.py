"""The cost of reading a block from a node, compared with a raw socket: `python -m bench.kv.transfer --json OUT`.

A node manager and a raw TCP server run in separate processes on loopback. Both send the same bytes into a reused
buffer. Ours also verifies the xxh3_128 of each block. Rounds of the two alternate, so that both run under the same
conditions. The SSD tier is compared with `preadv` of the same file, whose pages are in the kernel's cache.

`--mooncake` also reads blocks of the same sizes from Mooncake Store in the same run, over TCP from another process into
a registered, reused buffer, in alternating rounds. It is installed if it is missing.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

from bench.peers.mooncake_store import ask, mooncake_store
from bench.peers.rounds import quietest_and_median, ratios
from bench.report import Target, command_line, write_report
from kvstore.keys.keyring import KV, Keyring
from kvstore.node.node_manager import NodeManager, NodeSettings
from kvstore.tiers.block_facts import BlockFacts, checksum_of
from kvstore.tiers.block_header import BlockHeader
from kvstore.tiers.slot_file import SlotFile
from kvstore.transactions.catalog_settings import CatalogSettings
from kvstore.transfer.frames import Done
from kvstore.transfer.transfer_client import TransferClient, Wanted

SIZES = {"4kib": 4 << 10, "64kib": 64 << 10, "1mib": 1 << 20, "4mib": 4 << 20}
ROUNDS, PER_ROUND = 9, 60
_KEYRING = Keyring.of(b"bench.kv.transfer", kind=KV)
_SLOT, _BLOCKS = 4 << 20, 16


def _settings(directory: Path, dram_slots: int, ssd_slots: int) -> NodeSettings:
    catalog = CatalogSettings(
        dram_slots=dram_slots,
        ssd_slots=ssd_slots,
        slot_bytes=_SLOT,
        tenant_quota_bytes=1 << 40,
        pin_quota_bytes=0,
    )
    return NodeSettings(node_id="bench", keyring=_KEYRING, catalog=catalog, directory=directory if ssd_slots else None)


def _serve_node(settings: NodeSettings, sender: Connection) -> None:
    manager = NodeManager(settings)
    manager.start()
    sender.send(manager.port)
    threading.Event().wait()


def _serve_raw(sender: Connection) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    sender.send(listener.getsockname()[1])
    sock, _ = listener.accept()
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    payload = memoryview(bytearray(os.urandom(_SLOT)))
    while len(wanted := sock.recv(8, socket.MSG_WAITALL)) == 8:
        sock.sendall(payload[: int.from_bytes(wanted, "big")])


def _started(target: Callable[..., None], *arguments: object) -> tuple[multiprocessing.Process, int]:
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.Process(target=target, args=(*arguments, sender), daemon=True)
    process.start()
    return process, int(receiver.recv())


def _median_us(one: Callable[[int], None], count: int = PER_ROUND) -> float:
    took = []
    for number in range(count):
        before = time.perf_counter_ns()
        one(number)
        took.append((time.perf_counter_ns() - before) / 1000)
    return statistics.median(took)


def _raw_get(sock: socket.socket, view: memoryview) -> None:
    sock.sendall(len(view).to_bytes(8, "big"))
    done = 0
    while done < len(view):
        done += sock.recv_into(view[done:], 0, socket.MSG_WAITALL)


def _blocks(name: str, size: int) -> list[tuple[BlockFacts, memoryview]]:
    payloads = [memoryview(os.urandom(size)) for _ in range(_BLOCKS)]
    return [
        (BlockFacts(f"{name}-{number}".encode().ljust(32, b"."), size, checksum=checksum_of(payload)), payload)
        for number, payload in enumerate(payloads)
    ]


def measure_sockets(node: str, raw_port: int) -> dict[str, float]:
    """Return the median of each round's median, in microseconds, and the ratio of ours to raw, for each size."""
    client, figures = TransferClient(_KEYRING, time.monotonic), dict[str, float]()
    with socket.create_connection(("127.0.0.1", raw_port)) as raw:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for name, size in SIZES.items():
            blocks, buffer = _blocks(name, size), memoryview(bytearray(size))
            into = [Wanted(facts.key, buffer) for facts, _ in blocks]

            def put(number: int, blocks: list[tuple[BlockFacts, memoryview]] = blocks) -> None:
                if not isinstance(client.put(node, [blocks[number]]), Done):
                    raise RuntimeError("the node rejected a block")

            def get(number: int, into: list[Wanted] = into) -> None:
                if client.get([node], [into[number % _BLOCKS]]).blocks[0] is None:
                    raise RuntimeError("the node lost a block")

            figures[f"put_{name}_us"] = _median_us(put, _BLOCKS)
            rounds = [
                (_median_us(get), _median_us(lambda _, view=buffer: _raw_get(raw, view)))  # type: ignore[misc]
                for _ in range(ROUNDS)
            ]
            figures[f"get_{name}_us"] = statistics.median(ours for ours, _ in rounds)
            figures[f"raw_{name}_us"] = statistics.median(bare for _, bare in rounds)
            figures[f"get_{name}_gb_per_s"] = size / figures[f"get_{name}_us"] / 1000
            figures[f"get_{name}_over_raw"] = statistics.median(ours / bare for ours, bare in rounds)
    client.close()
    return figures


def measure_beside_mooncake(node: str) -> dict[str, float]:
    """Return the quietest and the median round of ours and of Mooncake Store for each size, in microseconds."""
    client, figures = TransferClient(_KEYRING, time.monotonic), dict[str, float]()
    with mooncake_store() as store, store.client(0) as peer:
        for name, size in SIZES.items():
            blocks, buffer = _blocks(f"beside-{name}", size), memoryview(bytearray(size))
            into = [Wanted(facts.key, buffer) for facts, _ in blocks]
            if not all(isinstance(client.put(node, [block]), Done) for block in blocks):
                raise RuntimeError("the node rejected a block")
            ask(peer, {"do": "put", "name": name, "size": size, "count": _BLOCKS})
            wanted = {"do": "get", "name": name, "size": size, "objects": _BLOCKS, "count": PER_ROUND}

            def get(number: int, into: list[Wanted] = into) -> None:
                if client.get([node], [into[number % _BLOCKS]]).blocks[0] is None:
                    raise RuntimeError("the node lost a block")

            ours, theirs = f"get_{name}_beside_us", f"mooncake_{name}_us"
            rounds = [{ours: _median_us(get), theirs: ask(peer, wanted)["result"]} for _ in range(ROUNDS)]
            times = quietest_and_median(rounds)
            figures |= times | ratios(times, ours, theirs, f"get_{name}_over_mooncake")
    client.close()
    return figures


def measure_ssd(directory: Path) -> dict[str, float]:
    """Return the times of a verified read of 1 MiB from the slot file, of a plain one, and of a scan of its headers."""
    slots, view = 20_000, memoryview(bytearray(1 << 20))
    file = SlotFile(directory, slots, 1 << 20)
    payload = memoryview(os.urandom(1 << 20))
    checksum = checksum_of(payload)
    for slot in range(_BLOCKS):
        file.write(slot, _header(slot, checksum), payload)
    for slot in range(_BLOCKS, slots):
        file.describe(slot, _header(slot, checksum))

    def checked(number: int) -> None:
        if not file.read_into(number % _BLOCKS, view) or checksum_of(view) != checksum:
            raise RuntimeError("the slot file lost a block")

    rounds = [(_median_us(checked), _median_us(lambda n: _bare(file, n, view))) for _ in range(ROUNDS)]
    before = time.perf_counter()
    headers = sum(1 for _ in file.scan())
    scan_s = time.perf_counter() - before
    file.close()
    return {
        "ssd_read_1mib_us": statistics.median(ours for ours, _ in rounds),
        "ssd_raw_1mib_us": statistics.median(bare for _, bare in rounds),
        "ssd_read_1mib_over_raw": statistics.median(ours / bare for ours, bare in rounds),
        "scan_us_per_header": 1e6 * scan_s / headers,
    }


def _header(slot: int, checksum: bytes) -> BlockHeader:
    facts = BlockFacts(slot.to_bytes(32, "big"), 1 << 20, checksum=checksum)
    return BlockHeader(facts, incarnation=1, sequence=slot, expires_at=1e12)


def _bare(file: SlotFile, number: int, view: memoryview) -> None:
    file.read_into(number % _BLOCKS, view)


def main() -> None:
    """Measure and write the result."""
    parser = command_line("kv_transfer", __doc__)
    parser.add_argument("--mooncake", action="store_true", help="also read from Mooncake Store")
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="kv-transfer-"))
    node, node_port = _started(_serve_node, _settings(directory, 2 * len(SIZES) * _BLOCKS, 0))
    raw, raw_port = _started(_serve_raw)
    address = f"127.0.0.1:{node_port}"
    try:
        figures = measure_sockets(address, raw_port)
        beside = measure_beside_mooncake(address) if options.mooncake else {}
        figures |= beside | measure_ssd(directory / "ssd")
    finally:
        for process in (node, raw):
            process.kill()
            process.join()
        shutil.rmtree(directory)
    figures["load_average"] = round(os.getloadavg()[0], 1)
    targets = {"get_1mib_over_raw": Target(value=figures["get_1mib_over_raw"], op="<=", target=1.46)}
    if beside:
        ratio = figures["get_1mib_over_mooncake"]
        targets["get_1mib_over_mooncake"] = Target(value=ratio, op="<=", target=0.7)
    write_report("kv_transfer", figures, targets, options.json)


if __name__ == "__main__":
    main()
