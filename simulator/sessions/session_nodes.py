"""The node managers that store sessions' KV blocks, or a remote store, and the transfers between tiers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from kvstore.transactions.expected_blocks import Expected
from routing.advisories.advised_routing import Staging
from routing.ledger.node_loads import NodeLoads
from simulator.engine_models.engine_profile import EngineProfile
from simulator.kv_nodes.node_cache import NodeStores
from simulator.link import QueuedLink, Transfer
from simulator.sessions.hardware import COMPRESSION, NODES, Hardware
from simulator.sessions.session_engine import SessionEngine
from simulator.sessions.systems import System
from simulator.sessions.turn import BLOCK_TOKENS, Session, Turn
from simulator.virtual_clock import VirtualClock


class PrefetchUse:
    """Counts bytes that prefetches deliver, by session and node, as used or wasted once the session's request arrives.

    Mutable state: `wasted_bytes`, `used_bytes`, `_unused`.
    """

    def __init__(self) -> None:
        self.used_bytes = 0.0
        self._gone_bytes = 0.0
        self._unused: defaultdict[int, dict[str, float]] = defaultdict(dict)

    @property
    def wasted_bytes(self) -> float:
        """Bytes that no request has used, including those that can still be used."""
        return self._gone_bytes + sum(sum(nodes.values()) for nodes in self._unused.values())

    def landed(self, session_id: int, node: str, size: float) -> None:
        """Count bytes that a prefetch delivered to a node or one of its engines."""
        nodes = self._unused[session_id]
        nodes[node] = nodes.get(node, 0.0) + size

    def arrived(self, session_id: int, node: str) -> None:
        """Count the bytes on the node that serves the session's request as used, and the others as wasted."""
        nodes = self._unused.pop(session_id, {})
        self.used_bytes += nodes.pop(node, 0.0)
        self._gone_bytes += sum(nodes.values())

    def evicted(self, session_id: int) -> None:
        """Count bytes that were evicted from DRAM before their request arrived as wasted."""
        self._gone_bytes += sum(self._unused.pop(session_id, {}).values())


NODE_NAMES = tuple(f"node-{number + 1}" for number in range(NODES))
REMOTE = "remote"
"""Name of the remote store."""
_LOAD_TIMEOUT_S = 60.0
"""Of the connector; its default of 2 s stops every load of 60,000 tokens from disk."""
_MAX_LOAD_RATIO = 3.0
_DISK_BYTES = 8e12
"""Per node; more than the caches of any run."""


def _ignored(_transfer: Transfer) -> None:
    pass


@dataclass(slots=True, eq=False)
class _Load:
    """A load in progress for a request."""

    request_id: str
    engine: SessionEngine
    source: str
    blocks: int
    ssd_blocks: int
    begun_s: float
    disk_read: Transfer | None


@dataclass(slots=True, eq=False)
class _Move:
    """A staging in progress."""

    staging: Staging
    transfer: Transfer
    expected: Expected
    disk_read: Transfer | None


class SessionNodes:
    """Caches and ledger are those of every simulated fleet (NodeStores); links carry chunks, for requests first.

    Blocks are available once their last byte has arrived. Mutable: the stores, the links, `_loads`, and `_moves` (by
    session).
    """

    def __init__(self, clock: VirtualClock, hardware: Hardware, profile: EngineProfile, system: System) -> None:
        self.use = PrefetchUse()
        self.store, self._ordered = system.store, system.ordered
        self.bytes_per_token = profile.kv_bytes_per_token / (COMPRESSION if system.compressed else 1.0)
        self.block_bytes = BLOCK_TOKENS * self.bytes_per_token
        self._clock = clock
        disk_blocks = int(_DISK_BYTES / self.block_bytes) if self.store == "tiers" else 0
        dram_blocks = max(1, int(hardware.dram_bytes / self.block_bytes))
        self._stores = NodeStores(NODE_NAMES, dram_blocks, disk_blocks, int(self.block_bytes))
        self._remote: dict[int, int] = {}
        self.nics = {node: QueuedLink(hardware.nic_bytes_per_s, clock) for node in NODE_NAMES}
        self.uplinks = {node: QueuedLink(hardware.nic_bytes_per_s, clock) for node in NODE_NAMES}
        self.disks = {node: QueuedLink(hardware.disk_bytes_per_s, clock) for node in NODE_NAMES}
        self._loads: dict[Transfer, _Load] = {}
        self._moves: dict[int, _Move] = {}
        self._staged: dict[int, int] = {}
        """Last staged block → session, until the block leaves DRAM."""

    @property
    def ledger(self) -> NodeLoads:
        """What the router knows of the nodes."""
        return self._stores.ledger

    @property
    def disk_busy(self) -> float:
        """Return the share of the disks' bandwidth used so far."""
        could = sum(link.bytes_per_s for link in self.disks.values()) * self._clock.now
        return sum(link.carried_bytes for link in self.disks.values()) / could if could else 0.0

    def set_engines(self, engines: Sequence[SessionEngine]) -> None:
        """Set the engines and their nodes."""
        self._stores.set_homes({engine.name: engine.node for engine in engines})

    def put(self, session: Session, node: str) -> None:
        """Store a session's cache on a node at the start of a run."""
        if self.store == "remote":
            self._remote[session.session_id] = session.context_tokens // BLOCK_TOKENS
        elif self.store != "none":
            self._put(node, session.keys(session.context_tokens), None)
            self._stores.caches[node].take_written()
            self._demote(session)

    def reach(self, turn: Turn, node: str) -> tuple[int, str]:
        """Return how many blocks of a request's context an engine of `node` can load, and from where.

        More blocks come first, then the engine's own node, then DRAM. A move in progress to the node delivers the rest.
        """
        keys = turn.session.keys(turn.context_tokens)
        move = self._moves.get(turn.session.session_id)
        if move is not None:
            return keys.index(move.staging.keys[-1]) + 1, node
        if self.store == "remote":
            return min(len(keys), self._remote.get(turn.session.session_id, 0)), REMOTE
        nodes = NODE_NAMES if self.store == "tiers" else (node,) if self.store == "host" else ()
        held = [(self._stores.caches[name].holds(keys), name) for name in nodes]
        ways = [(tiers.blocks, name == node, tiers.dram, name) for tiers, name in held]
        blocks, _, _, source = max(ways, default=(0, False, 0, ""))
        return blocks, source

    def dram_blocks(self, session: Session, node: str) -> int:
        """Return how many leading blocks of a session's cache a node has in DRAM."""
        return self._stores.caches[node].holds(session.keys(session.context_tokens)).dram

    # -- loads of requests

    def load(
        self, turn: Turn, engine: SessionEngine, landed: int, on_chunk: Callable[[Transfer], None]
    ) -> Transfer | None:
        """Load a request's blocks after the first `landed` into an engine; return None if the source has none of them.

        Blocks that the source has lost since the decision are left out of `turn.loaded_tokens`.
        """
        keys, link = turn.keys[: turn.loaded_tokens // BLOCK_TOKENS], engine.load_link
        if turn.source == REMOTE:
            size = (len(keys) - landed) * self.block_bytes
            return Transfer([self.nics[engine.node], link], size, on_chunk, urgent=True).start()
        if not turn.source:
            return None
        tiers = self._stores.caches[turn.source].read(keys, self._clock.now)
        self._publish(turn.source)
        self._write_through(turn.source, urgent=False)
        move = self._moves.get(turn.session.session_id)
        blocks = tiers.blocks if move is None else len(keys)
        wanted, in_dram = blocks - landed, max(0, tiers.dram - landed)
        if wanted <= 0:
            return None
        size, estimate = int(wanted * self.block_bytes), engine.estimate
        if self._ordered and not estimate.pays(wanted * BLOCK_TOKENS, size):
            estimate.rejected()
            return None
        ssd_blocks, disk_read = wanted - in_dram, None if move is None else move.transfer
        if ssd_blocks and move is None:
            disk = [self.disks[turn.source]]
            disk_read = Transfer(disk, ssd_blocks * self.block_bytes, _ignored, urgent=True).start()
        links = [link] if turn.source == engine.node else [self.nics[engine.node], link]
        transfer = Transfer(
            links,
            wanted * self.block_bytes,
            lambda item: self._loaded(item, engine, on_chunk),
            urgent=True,
            after=disk_read,
            ready_share=in_dram / wanted,
        )
        estimate.begin(turn.request_id, size)
        load = turn.request_id, engine, turn.source, wanted, ssd_blocks, self._clock.now, disk_read
        self._loads[transfer] = _Load(*load)
        turn.expect_load((landed + wanted) * BLOCK_TOKENS, turn.source)
        return transfer.start()

    def patience_s(self, turn: Turn, engine: SessionEngine) -> float:
        """Return how long an engine waits for a request's load before it computes the blocks."""
        return engine.estimate.patience_s(turn.loaded_tokens, _LOAD_TIMEOUT_S, _MAX_LOAD_RATIO)

    def stop(self, transfer: Transfer) -> None:
        """Stop a load that is late. The engine discards what has arrived."""
        load, now = self._loads.pop(transfer), self._clock.now
        transfer.cancel()
        if load.disk_read is not None:
            load.disk_read.cancel()
        seconds = now - load.begun_s
        load.engine.estimate.end(load.request_id, 0, seconds)
        lengths = load.blocks, seconds, now, load.ssd_blocks
        self.ledger.late(load.engine.name, load.source, *lengths, load.request_id)

    def _loaded(self, transfer: Transfer, engine: SessionEngine, on_chunk: Callable[[Transfer], None]) -> None:
        if transfer.done:
            load, now = self._loads.pop(transfer), self._clock.now
            size, seconds = int(load.blocks * self.block_bytes), now - load.begun_s
            engine.estimate.end(load.request_id, size, seconds)
            ssd = load.ssd_blocks
            self.ledger.loaded(engine.name, load.source, load.blocks, size, seconds, now, ssd, load.request_id)
        on_chunk(transfer)

    # -- moves of advisories

    def backlog(self) -> dict[str, float]:
        """Return node → seconds until the staged blocks are expected to have arrived."""
        waiting: dict[str, float] = {}
        for move in self._moves.values():
            target = move.staging.target
            waiting[target] = waiting.get(target, 0.0) + move.staging.move_s
        return waiting

    def stage(self, session: Session, staging: Staging, expected: Expected) -> Transfer | None:
        """Move blocks to another node, or from a node's disk to its DRAM; return None if the source has lost them."""
        self.end_move(session)
        source, target, keys = staging.source, staging.target, staging.keys
        tiers = self._stores.caches[source].holds(keys)
        if not tiers.blocks:
            return None
        size, disk, read = tiers.blocks * self.block_bytes, self.disks[source], None
        if source == target:
            transfer = Transfer([disk], size, lambda item: self._moved(session, item), urgent=False)
        else:
            on_disk = tiers.blocks - tiers.dram
            if on_disk:
                read = Transfer([disk], on_disk * self.block_bytes, _ignored, urgent=False).start()
            transfer = Transfer(
                [self.nics[target]],
                size,
                lambda item: self._moved(session, item),
                urgent=False,
                after=read,
                ready_share=tiers.dram / tiers.blocks,
            )
        self._moves[session.session_id] = _Move(staging, transfer, expected, read)
        return transfer.start()

    def follow_move(self, session: Session, node: str) -> None:
        """Let a session's request wait for the blocks that are being moved to its engine's node, ahead of others."""
        move = self._moves.get(session.session_id)
        if move is None or self._ordered or move.staging.target != node:
            self.end_move(session)
            return
        move.transfer.promote()
        if move.disk_read is not None:
            move.disk_read.promote()

    def end_move(self, session: Session) -> None:
        """Stop moving a session's blocks, as a gateway does when the request arrives. Those that have arrived stay."""
        move = self._moves.pop(session.session_id, None)
        if move is not None and not move.transfer.done:
            move.transfer.cancel()
            if move.disk_read is not None:
                move.disk_read.cancel()
            self._settle(session, move)

    def _moved(self, session: Session, transfer: Transfer) -> None:
        move = self._moves[session.session_id]
        self.use.landed(session.session_id, move.staging.target, transfer.chunk_bytes)
        if transfer.done:
            del self._moves[session.session_id]
            self._settle(session, move)

    def _settle(self, session: Session, move: _Move) -> None:
        staging, transfer = move.staging, move.transfer
        keys = staging.keys[: len(staging.keys) * transfer.landed // transfer.chunks]
        if not keys:
            return
        self._staged[keys[-1]] = session.session_id
        if staging.source == staging.target:
            self._stores.caches[staging.target].promote(keys, self._clock.now, move.expected)
            self._publish(staging.target)
        else:
            all_keys = session.keys(session.context_tokens)
            first = all_keys.index(keys[0]) if keys[0] in all_keys else 0
            self._put(staging.target, keys, all_keys[first - 1] if first else None, move.expected)

    # -- blocks that engines computed

    def store_turn(self, turn: Turn, engine: SessionEngine) -> None:
        """Store a finished request's blocks, prompt and answer, on its engine's node or in the remote store.

        Blocks that the node holds are not stored again. Headway's engines offer what they computed, other systems'
        engines all blocks.
        """
        session, keys = turn.session, turn.session.keys(turn.memory_tokens)
        if self.store == "remote":
            first = self._remote.get(session.session_id, 0)
        else:
            first = self._stores.caches[engine.node].holds(keys).blocks
            if self._ordered:
                first = max(first, turn.loaded_tokens // BLOCK_TOKENS)
        if self.store == "none" or first >= len(keys):
            self._demote(session)
            return
        links = [engine.store_link, *([self.uplinks[engine.node]] if self.store == "remote" else ())]
        size = (len(keys) - first) * self.block_bytes

        def written(transfer: Transfer) -> None:
            if not transfer.done:
                return
            if self.store == "remote":
                self._remote[session.session_id] = len(keys)
                return
            self._put(engine.node, keys[first:], keys[first - 1] if first else None)
            self._write_through(engine.node, urgent=True, on_chunk=partial(self._on_disk, session, len(keys)))

        Transfer(links, size, written, urgent=True).start()

    def check(self) -> None:
        """Raise if a part is inconsistent, or a link has carried more than its bandwidth allows."""
        self._stores.check()
        for link in (*self.nics.values(), *self.uplinks.values(), *self.disks.values()):
            link.check()

    # -- inner

    def _on_disk(self, session: Session, blocks: int, write: Transfer) -> None:
        if write.done and blocks == session.context_tokens // BLOCK_TOKENS:
            self._demote(session)

    def _demote(self, session: Session) -> None:
        if session.demoted:
            for node in NODE_NAMES:
                self._stores.caches[node].demote(session.keys(session.context_tokens))
                self._publish(node)

    def _put(self, node: str, keys: Sequence[int], parent: int | None, expected: Expected | None = None) -> None:
        self._stores.caches[node].put(keys, self._clock.now, parent=parent, expected=expected)
        self._publish(node)

    def _write_through(self, node: str, *, urgent: bool, on_chunk: Callable[[Transfer], None] = _ignored) -> None:
        """Carry the blocks that a node has begun to write to its disk."""
        blocks = self._stores.caches[node].take_written()
        if blocks:
            Transfer([self.disks[node]], blocks * self.block_bytes, on_chunk, urgent=urgent).start()

    def _publish(self, node: str) -> None:
        for key, (_, in_dram) in self._stores.publish_changes(node).items():
            if not in_dram and key in self._staged:
                self.use.evicted(self._staged.pop(key))
