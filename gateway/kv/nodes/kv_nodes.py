"""The node managers that this gateway follows, and the table of their contents.

Followers read in separate threads. The event loop's thread applies their results to the table in parts of about a
millisecond, and a follower is at most a few parts ahead.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping

import zmq
from typing_extensions import override

from gateway.base.event_log import log_event
from gateway.base.metrics import GatewayMetrics
from gateway.contracts.snapshot import KvNodeEntry
from gateway.kv.nodes.node_follower import Follow, FollowSettings, NodeFollower, NodeSink
from kvstore.transfer.connection_pool import ConnectionPool
from kvstore.transfer.shared_secret import NodeAccess
from routing.ledger.node_holdings import NodeHoldings

MAX_NODES = 256
"""Limit of followed nodes, in order of their names. Nothing is loaded from the others."""
SERVING = "serving"
CLIENT = "gateway"
"""This client's name in the counts of nodes."""
_AHEAD = 4
_PART = 2048
_END_S = 5.0


class KvNodes:
    """The followed node managers. Mutable: the table, the followers and the nodes' entries, used on the event loop's
    thread.
    """

    def __init__(
        self,
        access: NodeAccess,
        metrics: GatewayMetrics,
        settings: FollowSettings | None = None,
        follow: Follow | None = None,
    ) -> None:
        self.holdings = NodeHoldings()
        self.entries: Mapping[str, KvNodeEntry] = {}
        """Followed nodes by name."""
        self._access, self._metrics = access, metrics
        self._settings = settings or FollowSettings()
        self._follow = follow or self._new_follower
        self._followers: dict[str, NodeFollower] = {}
        self._posts: dict[str, _Posts] = {}
        self._ending: list[NodeFollower] = []
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._connections: ConnectionPool | None = None
        self._secret_logged = False

    def apply(self, entries: Iterable[KvNodeEntry]) -> None:
        """Follow these nodes. Unchanged nodes keep their followers. Call it on the loop's thread."""
        wanted = {item.name: item for item in entries if item.events_endpoint and item.state == SERVING}
        if wanted and self._access.keyring is None:
            wanted = {}
            self._log_missing_secret()
        wanted = dict(sorted(wanted.items())[:MAX_NODES])
        for name in [known for known, entry in self.entries.items() if wanted.get(known) != entry]:
            self._end(name)
        for name, entry in wanted.items():
            if name not in self._followers:
                self._begin(entry)
        self.entries = wanted

    def slot_bytes(self) -> dict[str, int]:
        """Return node → bytes of the largest block that it stores."""
        return {name: entry.slot_bytes for name, entry in self.entries.items()}

    def addresses(self, names: Iterable[str]) -> list[str]:
        """Return the nodes' addresses in this order, without nodes that are no longer followed."""
        return [self.entries[name].address for name in names if name in self.entries]

    def name_at(self, address: str) -> str:
        """Return the name of the node with this address or name, empty if there is none."""
        if address in self.entries:
            return address
        return next((name for name, entry in self.entries.items() if entry.address == address), "")

    async def stop(self) -> None:
        """End all followers and their sockets."""
        for name in list(self._followers):
            self._end(name)
        self.entries = {}
        ending, self._ending = self._ending, []
        ended = await asyncio.to_thread(_ended, ending)
        if self._connections is not None:
            self._connections.close()
        # term() would wait for the sockets of a thread that still runs.
        if self._context is not None and ended:
            self._context.term()

    def _begin(self, entry: KvNodeEntry) -> None:
        self.holdings.join(entry.name)
        posts = self._posts[entry.name] = _Posts(asyncio.get_running_loop(), self.holdings, self._show)
        follower = self._followers[entry.name] = self._follow(entry, posts)
        self._show(entry.name, None)
        follower.start()

    def _end(self, name: str) -> None:
        # First, so that no late result changes the table after the node has left it.
        self._posts.pop(name).end()
        follower = self._followers.pop(name)
        follower.stop()
        self._ending = [item for item in self._ending if not item.join(0.0)] + [follower]
        self.holdings.leave(name)
        self._metrics.kv_node_followed.remove(name)
        self._metrics.kv_node_blocks.remove(name)

    def _show(self, name: str, blocks: int | None) -> None:
        """Record a node as followed with its blocks, or as degraded."""
        self._metrics.kv_node_followed.set(name, value=0.0 if blocks is None else 1.0)
        self._metrics.kv_node_blocks.set(name, value=float(blocks or 0))

    def _new_follower(self, entry: KvNodeEntry, sink: NodeSink) -> NodeFollower:
        if self._context is None or self._connections is None:
            self._context = zmq.Context()
            self._connections = ConnectionPool(
                self._access.keyring, time.monotonic, self._access.tls, self._settings.timeout_s, CLIENT
            )
        return NodeFollower(entry, self._connections, self._context, sink, self._settings)

    def _log_missing_secret(self) -> None:
        if not self._secret_logged:
            self._secret_logged = True
            log_event(
                "kv_nodes_not_followed",
                level=logging.WARNING,
                reason="this gateway lacks the node managers' secret",
                remedy="set the same HEADWAY_KV_SECRET for gateways and node managers",
            )


class _Posts(NodeSink):
    """Passes a follower's results to the loop's thread. Results after `end` are dropped.

    Mutable: `_over`, and `_room` for parts that the loop has not applied yet.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, holdings: NodeHoldings, show: Callable[[str, int | None], None]
    ) -> None:
        self._loop, self._holdings, self._show = loop, holdings, show
        self._room = threading.Semaphore(_AHEAD)
        self._over = threading.Event()
        self._blocks = 0
        self._followed = False

    @override
    def changed(self, node: str, *, stored: bool, keys: list[int], dram: bool, held: int) -> None:
        for begin in range(0, len(keys), _PART):
            self._post(self._change, node, stored, keys[begin : begin + _PART], dram, held)

    @override
    def cleared(self, node: str) -> None:
        self._post(self._clear, node)

    @override
    def complete(self, node: str, blocks: int) -> None:
        self._post(self._completed, node, blocks)

    def end(self) -> None:
        """Accept no more results."""
        self._over.set()

    def _post(self, what: Callable[..., None], *arguments: object) -> None:
        while not self._room.acquire(timeout=0.2):
            if self._over.is_set():
                return
        try:
            self._loop.call_soon_threadsafe(self._take, what, arguments)
        except RuntimeError:
            # The loop has ended, and with it every reader of the table.
            self._over.set()

    def _take(self, what: Callable[..., None], arguments: tuple[object, ...]) -> None:
        self._room.release()
        if not self._over.is_set():
            what(*arguments)

    def _change(self, node: str, stored: bool, keys: list[int], dram: bool, held: int) -> None:
        if stored:
            self._holdings.stored(node, keys, dram=dram)
        else:
            self._holdings.removed(node, keys)
        self._blocks = held
        if self._followed:
            self._show(node, self._blocks)

    def _clear(self, node: str) -> None:
        if self._followed:
            log_event("kv_node_lost", level=logging.WARNING, node=node)
        self._followed, self._blocks = False, 0
        self._holdings.cleared(node)
        self._show(node, None)

    def _completed(self, node: str, blocks: int) -> None:
        self._followed, self._blocks = True, blocks
        self._holdings.complete(node)
        self._show(node, blocks)
        log_event("kv_node_followed", node=node, blocks=blocks)


def _ended(followers: list[NodeFollower]) -> bool:
    ends_at = time.monotonic() + _END_S
    for follower in followers:
        follower.join(max(0.0, ends_at - time.monotonic()))
    return all(follower.join(0.0) for follower in followers)
