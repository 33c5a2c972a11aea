"""Client and server together over loopback, with real nodes behind the server."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path

import pytest

from kvstore.keys.keyring import KV, Keyring
from kvstore.node.node_manager import NodeManager
from kvstore.tiers.block_facts import DRAM, BlockFacts
from kvstore.transfer import transfer_server
from kvstore.transfer.connection import Connection, PeerError
from kvstore.transfer.frames import (
    Allocate,
    Commit,
    Done,
    FrameError,
    Get,
    Held,
    Lookup,
    Purge,
    Put,
    TransferRejected,
    Write,
)
from kvstore.transfer.handshake import CONNECTIONS
from kvstore.transfer.transfer_client import TransferClient, TransferSettings, Wanted
from tests.certificates import certificates
from tests.kvstore.kv_blocks import KEYRING, SLOT, a_client, address, block, key, node, payload
from tests.patience import wait_until

NAMES = ["a", "b", "c"]

OTHER = Keyring.of(b"another secret of theirs", kind=KV)
OLD, NEW = Keyring.of(b"before", kind=KV), Keyring.of(b"after", kind=KV)
STEPS = (b"before", b""), (b"before", b"after"), (b"after", b"before"), (b"after", b"")
ADJACENT = [
    (Keyring.of(*nodes, kind=KV), Keyring.of(*clients, kind=KV))
    for step, nodes in enumerate(STEPS)
    for clients in STEPS[max(0, step - 1) : step + 2]
]


def put(client: TransferClient, manager: NodeManager, *names: object, length: int = 1000) -> None:
    assert client.put(address(manager), [block(name, length=length) for name in names]) == Done(len(names), [])


def contents(client: TransferClient, holders: list[str], names: list[object]) -> list[bytes | None]:
    received = client.get(holders, [Wanted(key(name)) for name in names])
    return [bytes(item.payload) if item else None for item in received.blocks]


def test_stored_blocks_are_returned_in_order_and_others_are_misses() -> None:
    with node() as manager, a_client() as client:
        put(client, manager, *NAMES)
        expected = [bytes(payload("c")), None, bytes(payload("a"))]
        assert contents(client, [address(manager)], ["c", "x", "a"]) == expected


def test_blocks_are_written_directly_into_the_given_buffers() -> None:
    with node() as manager, a_client() as client:
        put(client, manager, *NAMES)
        large, small = memoryview(bytearray(SLOT)), memoryview(bytearray(10))
        wanted = [Wanted(key("a"), large), Wanted(key("b"), small), Wanted(key("c"))]
        got = client.get([address(manager)], wanted).blocks
        assert got[0] is not None
        assert got[0].payload.obj is large.obj
        assert bytes(large[:1000]) == bytes(payload("a"))
        assert got[1] is None, "a buffer too small is a miss, and the blocks after it arrive"
        assert got[2] is not None


def test_a_batch_is_transferred_in_pieces() -> None:
    settings = TransferSettings(piece_bytes=2500)
    with node(slots={"dram_slots": 32}) as manager, a_client(settings=settings) as client:
        for name in range(20):
            put(client, manager, name)
        assert contents(client, [address(manager)], list(range(20))) == [bytes(payload(name)) for name in range(20)]
        assert client.links[address(manager)].transfers == 10


def test_a_repeated_put_is_harmless() -> None:
    with node() as manager, a_client() as client:
        put(client, manager, "a")
        assert client.put(address(manager), [block("b"), block("a")]) == Done(1, [key("a")])
        assert contents(client, [address(manager)], ["b"]) == [bytes(payload("b"))]


def test_a_put_whose_bytes_differ_from_the_announcement_stores_nothing() -> None:
    with node() as manager, a_client() as client:
        facts, _ = block("a")
        assert client.put(address(manager), [(facts, payload("b"))]) == TransferRejected("checksum")
        assert contents(client, [address(manager)], ["a"]) == [None]
        put(client, manager, "a")


def test_a_rejected_put_leaves_the_connection_usable() -> None:
    with node() as manager, a_client() as client:
        answer = client.put(address(manager), [block("a", length=SLOT + 1)])
        assert answer == TransferRejected("too_large", [key("a")])
        put(client, manager, "b")
        assert len(manager.server) == 1


def test_a_transaction_runs_step_by_step() -> None:
    with node() as manager, a_client() as client:
        put(client, manager, "a")
        there, (facts, data) = address(manager), block("b", "a")
        assert client.call(there, Allocate("t", [key("a")], [facts], 10.0)) == Done(1, [])
        assert client.call(there, Put([facts]), [data]) == TransferRejected("locked", [key("b")])
        assert client.call(there, Commit("t")) == TransferRejected("not_open")
        assert client.call(there, Write("t", [key("b")], [facts.checksum]), [data[:-1]]) == TransferRejected("length")
        assert client.call(there, Write("t", [key("b")], [facts.checksum]), [data]) == Done(1)
        assert client.call(there, Commit("t")) == Done()
        assert contents(client, [there], ["b"]) == [bytes(data)]


def test_a_client_without_the_secret_gets_nothing() -> None:
    with node() as manager, a_client(OTHER) as client:
        with pytest.raises(PeerError):
            client.call(address(manager), Lookup([key("a")]))
        wait_until(lambda: manager.server.rejected["unproved"] == 1)


def test_without_a_secret_a_client_opens_no_connection() -> None:
    with node() as manager, a_client(None) as client:
        with pytest.raises(PeerError, match="without the nodes' secret"):
            client.call(address(manager), Lookup([key("a")]))
        assert (manager.server.rejected["unproved"], len(manager.server)) == (0, 0)


@pytest.mark.parametrize(("nodes", "clients"), ADJACENT)
def test_nodes_and_clients_one_rotation_step_apart_accept_each_other(nodes: Keyring, clients: Keyring) -> None:
    with node(keyring=nodes) as manager, a_client(clients, name="engine-1") as client:
        client.put(address(manager), [block("a")])
        assert client.call(address(manager), Purge("acme")) == Done(1)
        assert not manager.server.rejected.total()
        uses = {purpose: (use.count, use.who) for purpose, use in nodes.uses.items()}
        by_other = clients.used.fingerprint != nodes.used.fingerprint
        assert uses == ({CONNECTIONS: (1, "engine-1")} if by_other else {})


@pytest.mark.parametrize(("nodes", "clients"), [(OLD, NEW), (NEW, OLD)])
def test_nodes_and_clients_two_rotation_steps_apart_reject_each_other(nodes: Keyring, clients: Keyring) -> None:
    with node(keyring=nodes) as manager, a_client(clients) as client, pytest.raises(PeerError):
        client.call(address(manager), Lookup([key("a")]))


def test_a_client_does_not_trust_a_node_without_the_secret() -> None:
    with node(keyring=OTHER) as manager, a_client() as client, pytest.raises(PeerError):
        client.call(address(manager), Lookup([key("a")]))


def test_no_request_is_answered_before_the_greeting() -> None:
    with node() as manager, socket.create_connection(("127.0.0.1", manager.port)) as sock:
        connection = Connection(sock, 5.0)
        connection.receive(greeting=True)
        connection.send(Lookup([key("a")]))
        with pytest.raises(PeerError, match=r"closed|reset"):
            connection.receive()


def test_a_block_damaged_in_dram_is_never_returned() -> None:
    with node() as manager, a_client() as client:
        put(client, manager, *NAMES)
        record = manager.store.catalog.find(key("b"))
        assert record is not None
        manager.store.arena.view(record.slots[DRAM], 5)[0] ^= 1
        assert contents(client, [address(manager)], NAMES) == [bytes(payload("a")), None, bytes(payload("c"))]
        assert manager.store.catalog.find(key("b")) is None
        assert manager.store.counts.corrupt[DRAM] == 1


def test_a_block_damaged_in_dram_is_repaired_from_ssd(tmp_path: Path) -> None:
    with node(tmp_path) as manager, a_client() as client:
        put(client, manager, "a")
        record = manager.store.catalog.find(key("a"))
        assert record is not None
        wait_until(lambda: len(record.slots) == 2)
        manager.store.arena.view(record.slots[DRAM], 5)[0] ^= 1
        assert contents(client, [address(manager)], ["a"]) == [bytes(payload("a"))]
        assert manager.store.counts.repaired == 1


def test_a_block_damaged_on_one_node_is_read_from_another_holder() -> None:
    with node() as one, node() as other, a_client() as client:
        for manager in (one, other):
            put(client, manager, "a")
        record = one.store.catalog.find(key("a"))
        assert record is not None
        one.store.arena.view(record.slots[DRAM], 5)[0] ^= 1
        assert contents(client, [address(one), address(other)], ["a"]) == [bytes(payload("a"))]


def test_blocks_missing_on_a_dead_or_incomplete_holder_come_from_the_next() -> None:
    with node() as one, node() as other, a_client() as client:
        put(client, one, "a")
        put(client, other, "b")
        with socket.create_server(("127.0.0.1", 0)) as dead:
            gone = f"127.0.0.1:{dead.getsockname()[1]}"
        holders = [gone, address(one), address(other)]
        assert contents(client, holders, ["a", "b"]) == [bytes(payload("a")), bytes(payload("b"))]


def test_holders_are_queried_in_order_and_each_has_a_verdict() -> None:
    with node() as one, node() as other, node() as idle, a_client() as client:
        first, second, third = address(one), address(other), address(idle)
        for manager, names in ((one, "a"), (other, "abc"), (idle, "abc")):
            put(client, manager, *names)
        with socket.create_server(("127.0.0.1", 0)) as dead:
            gone = f"127.0.0.1:{dead.getsockname()[1]}"
        wanted = [Wanted(key(name)) for name in "abc"]
        received = client.get([gone, first, second, third], wanted)
        assert [block and block.holder for block in received.blocks] == [first, second, second]
        assert (received.verdicts, received.holder, received.reason) == ({gone: "down", first: "missing"}, first, "")
        assert third not in client.links


def test_a_holder_that_keeps_sending_a_damaged_block_has_the_verdict_corrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    with node() as manager, a_client() as client:
        put(client, manager, *NAMES)
        record = manager.store.catalog.find(key("b"))
        assert record is not None
        manager.store.arena.view(record.slots[DRAM], 5)[0] ^= 1
        monkeypatch.setattr(manager.store, "verify", lambda _key: None)
        received = client.get([address(manager)], [Wanted(key(name)) for name in NAMES])
        assert [block is not None for block in received.blocks] == [True, False, True]
        assert (received.verdicts, received.reason, client.corrupt) == ({address(manager): "corrupt"}, "missing", 2)


def test_the_verdict_of_the_first_holder_states_why_blocks_are_missing() -> None:
    with node() as manager, a_client() as client:
        with socket.create_server(("127.0.0.1", 0)) as dead:
            gone = f"127.0.0.1:{dead.getsockname()[1]}"
        there = address(manager)
        for holders, reason in (
            ([there], "missing"),
            ([there, gone], "missing"),
            ([gone, there], "failed"),
            ([], "missing"),
        ):
            received = client.get(holders, [Wanted(key("a"))])
            assert (received.blocks, received.holder, received.reason) == ([None], "", reason)
            assert not manager.server.rejected.total()


def test_a_dead_peer_is_avoided_for_a_while() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        gone = f"127.0.0.1:{listener.getsockname()[1]}"
    now = [0.0]
    client = TransferClient(KEYRING, lambda: now[0])
    assert contents(client, [gone], ["a"]) == [None]
    with socket.create_server(("127.0.0.1", int(gone.rpartition(":")[2]))) as listener:
        listener.settimeout(0.05)
        assert contents(client, [gone], ["a"]) == [None]
        with pytest.raises(TimeoutError):
            listener.accept()
        now[0] = 60.0
        client_thread = threading.Thread(target=contents, args=(client, [gone], ["a"]))
        client_thread.start()
        listener.settimeout(5.0)
        listener.accept()[0].close()
        client_thread.join()
    client.close()


def test_a_node_restarted_on_its_port_is_reached_over_a_new_connection() -> None:
    with a_client() as client:
        with node() as manager:
            put(client, manager, "a")
            port = manager.port
        with node(port=port) as manager:
            put(client, manager, "b")


def test_idle_connections_are_closed() -> None:
    now = 0.0
    with node() as manager, a_client(clock=lambda: now) as client:
        put(client, manager, "a")
        client.close_idle()
        assert len(manager.server) == 1
        now = 20.0
        client.close_idle()
        wait_until(lambda: len(manager.server) == 0)
        assert contents(client, [address(manager)], ["a"]) == [bytes(payload("a"))]


def test_a_read_that_times_out_in_the_queue_closes_its_connection() -> None:
    settings = TransferSettings(timeout_s=0.1)
    with node() as manager, a_client(settings=settings) as client:
        put(client, manager, "a")
        with client._flow.moving(0, settings.window_bytes, 1.0):
            assert contents(client, [address(manager)], ["a"]) == [None]
        wait_until(lambda: len(manager.server) == 0)


def test_a_peer_that_stops_in_the_middle_of_a_block_is_a_miss() -> None:
    with a_client(settings=TransferSettings(timeout_s=0.3)) as client, cutting_server() as there:
        assert contents(client, [there], ["a"]) == [None]


class cutting_server:
    """A node that greets, announces a block, and sends half of it."""

    def __enter__(self) -> str:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _run(self) -> None:
        open_sockets = []
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                break
            open_sockets.append(sock)
            connection = Connection(sock, 5.0)
            connection.accept_client(KEYRING.keys(CONNECTIONS), "cutter", 1)
            assert isinstance(connection.receive()[0], Get)
            frame = transfer_server.Blocks([1000], [bytes(16)])
            sock.sendall(_whole_frame(frame)[:-500])
        for sock in open_sockets:
            sock.close()


def _whole_frame(message: transfer_server.Blocks) -> bytes:
    from kvstore.transfer.frames import encode

    return encode(message, 1000) + bytes(1000)


def test_the_number_of_connections_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer_server, "MAX_CONNECTIONS", 2)
    with node() as manager:
        clients = [TransferClient(KEYRING, time.monotonic) for _ in range(3)]
        for client in clients[:2]:
            client.call(address(manager), Lookup([]))
        with pytest.raises(PeerError):
            clients[2].call(address(manager), Lookup([]))
        for client in clients:
            client.close()


def test_a_message_over_the_limits_leaves_no_connection_behind() -> None:
    with node() as manager, a_client() as client:
        with pytest.raises(FrameError):
            client.call(address(manager), Lookup([b"x" * 32] * 40_000))
        wait_until(lambda: len(manager.server) == 0)
        assert client.call(address(manager), Lookup([])) == Held([])


def test_many_threads_put_and_get_concurrently() -> None:
    wrong: list[object] = []
    with node(slots={"dram_slots": 64}) as manager, a_client() as client:

        def work(worker: int) -> None:
            for number in range(30):
                name = number % 12 if worker % 2 else f"{worker}-{number}"
                client.put(address(manager), [block(name)])
                [got] = contents(client, [address(manager)], [name])
                if got not in (None, bytes(payload(name))):
                    wrong.append(name)

        threads = [threading.Thread(target=work, args=(worker,)) for worker in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_between_hosts_both_ends_present_a_certificate(tmp_path: Path) -> None:
    files = certificates(tmp_path)
    with node(tls=files) as manager:
        with a_client(tls=files) as client:
            client.put(address(manager), [block(name, length=SLOT) for name in NAMES])
            assert contents(client, [address(manager)], ["b"]) == [bytes(payload("b", SLOT))]
        with a_client(settings=TransferSettings(timeout_s=2.0)) as plain, pytest.raises(PeerError):
            plain.call(address(manager), Lookup([]))
    settings = TransferSettings(timeout_s=2.0)
    with node() as bare, a_client(tls=files, settings=settings) as client, pytest.raises(PeerError):
        client.call(address(bare), Lookup([]))


def test_changed_certificate_files_apply_to_new_connections_and_broken_ones_do_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files, other = certificates(tmp_path / "own"), certificates(tmp_path / "other")
    settings = TransferSettings(timeout_s=5.0)
    with node(tls=files) as manager, a_client(tls=files, settings=settings) as old:
        put(old, manager, "a")
        files.certificate.write_bytes(other.certificate.read_bytes())
        with a_client(tls=other, settings=settings) as client, pytest.raises(PeerError):
            client.call(address(manager), Lookup([]))
        assert "the changed certificate files are not used" in caplog.text
        for kind in ("key", "authority"):
            getattr(files, kind).write_bytes(getattr(other, kind).read_bytes())
        with a_client(tls=other, settings=settings) as client:
            assert contents(client, [address(manager)], ["a"]) == [bytes(payload("a"))]
        # The earlier connection is still the same, and so would be a new one of this client.
        assert contents(old, [address(manager)], ["a"]) == [bytes(payload("a"))]
        old._pool.close_idle()
        put(old, manager, "b")


def test_facts_without_a_checksum_are_rejected() -> None:
    with node() as manager, a_client() as client:
        bare = BlockFacts(key("a"), 1000)
        assert client.put(address(manager), [(bare, payload("a"))]) == TransferRejected("checksum")
