"""Check what a node must release after its clients are gone: connections, leases, slots, descriptors, purged bytes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from bench.kv.soak_run.known_blocks import MARK, SECRET, TENANTS, known
from bench.kv.soak_run.node_process import DRAM_SLOTS, NodeProcess
from kvstore.keys.keyring import KV, Keyring
from kvstore.transfer.connection import PeerError
from kvstore.transfer.frames import Abort, Allocate, Done, Purge
from kvstore.transfer.transfer_client import TransferClient, TransferSettings

_QUIET_S = 45.0
"""Time limit for leases, silent connections, and the disk's queue to end."""
_SLOTS = ('slots_used{medium="CPU"}', 'slots_used{medium="STORAGE"}')


def leaks_of(node: NodeProcess) -> list[str]:
    """Return a sentence for each leak of a purged node, which must have room for as many blocks as it has slots."""
    client = TransferClient(
        Keyring.of(SECRET.encode(), kind=KV), time.monotonic, settings=TransferSettings(timeout_s=50.0)
    )
    try:
        leaks = _open_things(node) + _purged(node, client) + _room(node, client)
    except (PeerError, OSError) as error:
        return [f"{node.name} does not answer at the end: {error}"]
    finally:
        client.close()
    return [f"{node.name}: {descriptor}" for descriptor in leaks + _descriptors(node)]


def _open_things(node: NodeProcess) -> list[str]:
    return _until(lambda: _more_than_none(node, ("transactions", "connections")))


def _purged(node: NodeProcess, client: TransferClient) -> list[str]:
    rejected = [
        f"the purge of {tenant} is rejected"
        for tenant in TENANTS
        if not isinstance(client.call(node.direct_address, Purge(tenant)), Done)
    ]
    kept = [f"{item} after a purge" for item in _more_than_none(node, ("blocks", "tenants", *_SLOTS))]
    count = node.file_bytes().count(MARK)
    # A full disk is retried once a second, so a long queue may have waited; after the purge it is empty.
    waiting = _until(lambda: _more_than_none(node, ("write_through_waiting",)))
    return rejected + kept + waiting + ([f"{count} payloads can be read after a purge"] if count else [])


def _room(node: NodeProcess, client: TransferClient) -> list[str]:
    """Check that all slots of DRAM can be allocated at once, so that none is in use or locked without an owner."""
    new = [known(f"room-{number}").facts for number in range(DRAM_SLOTS)]
    answer = client.call(node.direct_address, Allocate(f"room-{node.lives}", [], new, 10.0))
    got = [] if isinstance(answer, Done) else [f"its {DRAM_SLOTS} slots cannot be allocated: {answer}"]
    client.call(node.direct_address, Abort(f"room-{node.lives}"))
    return got + [f"{item} after an abort" for item in _more_than_none(node, _SLOTS)]


def _more_than_none(node: NodeProcess, names: Sequence[str]) -> list[str]:
    left = node.metrics()
    return [f"{left[name]:.0f} {name}" for name in names if left[name]]


def _descriptors(node: NodeProcess) -> list[str]:
    def more() -> list[str]:
        now = node.descriptors()
        return [f"{now} descriptors, {node.base_descriptors} at its start"] if now > node.base_descriptors else []

    return _until(more)


def _until(check: Callable[[], list[str]]) -> list[str]:
    """Repeat the check until it reports no leak, or until the time limit."""
    ends_at = time.monotonic() + _QUIET_S
    while (leaks := check()) and time.monotonic() < ends_at:
        time.sleep(0.2)
    return leaks
