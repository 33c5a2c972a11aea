"""The tiers of sessions' KV caches below engine memory, and the transfers that load, move, and store them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from simulator.sessions.engine_memory import Prefetched
from simulator.sessions.hardware import COMPRESSION, NODES, Hardware, ServedModel
from simulator.sessions.host_memory import HostMemory
from simulator.sessions.links import SessionLink, SessionTransfer
from simulator.sessions.prefetch_use import PrefetchUse
from simulator.sessions.session_engine import SessionEngine
from simulator.sessions.systems import System
from simulator.sessions.turn import Session
from simulator.virtual_clock import VirtualClock

NEVER = float("inf")


class KvTiers:
    """DRAM and disks of the nodes, or a remote store, and the links between them.

    A copy is available once its last byte has arrived. Mutable state: `hosts`, `fills` (transfers into a node's DRAM,
    by session and node), the links, and which sessions are on disk.
    """

    def __init__(self, clock: VirtualClock, hardware: Hardware, model: ServedModel, system: System) -> None:
        self.use = PrefetchUse()
        self.bytes_per_token = model.kv_bytes_per_token / (COMPRESSION if system.compressed else 1.0)
        self.fills: dict[tuple[int, int], SessionTransfer] = {}
        self._clock = clock
        self._store = system.store
        self._move = system.move
        tokens = hardware.dram_bytes / self.bytes_per_token
        self.hosts = [HostMemory(tokens, self.use.evicted) for _ in range(NODES)]
        self.nics = [SessionLink(f"NIC of node {node}", hardware.nic_bytes_per_s, clock) for node in range(NODES)]
        self.uplinks = [SessionLink(f"uplink of node {node}", hardware.nic_bytes_per_s, clock) for node in range(NODES)]
        self.disks = [SessionLink(f"disk of node {node}", hardware.disk_bytes_per_s, clock) for node in range(NODES)]

    @property
    def disk_busy(self) -> float:
        """Return the share of the disks' bandwidth used so far."""
        could = sum(link.bytes_per_s for link in self.disks) * self._clock.now
        return sum(link.carried_bytes for link in self.disks) / could if could else 0.0

    def fill_s(self, session: Session, node: int, *, urgent: bool) -> float:
        """Return when a session's whole cache could be in a node's DRAM, in seconds from now; infinite without a
        copy.
        """
        fill = self.fills.get((session.session_id, node))
        if fill is not None:
            own = 0.0 if fill.urgent else fill.left_bytes
            return max((link.booked[True] + own) / link.bytes_per_s for link in fill.links)
        path = self._path(session, node)
        if path is None:
            return NEVER
        size = self._missing_bytes(session, node)
        return max((link.wait_s(urgent) + size / link.bytes_per_s for link in path), default=0.0)

    def load_s(self, session: Session, engine: SessionEngine, fill_s: float, *, urgent: bool) -> float:
        """Return when the cache could be in an engine, if its node has the cache in DRAM in `fill_s` seconds."""
        prefetched = engine.memory.prefetched.get(session.session_id)
        landed = prefetched.landed_tokens if prefetched is not None else 0
        if landed >= session.context_tokens:
            return 0.0
        link = engine.load_link
        size = (session.context_tokens - landed) * self.bytes_per_token
        return max(fill_s, link.wait_s(urgent) + size / link.bytes_per_s)

    def fill(self, session: Session, node: int, *, urgent: bool) -> SessionTransfer | None:
        """Load a session's cache into a node's DRAM; return None if it is already there or no copy exists."""
        key = session.session_id, node
        fill = self.fills.get(key)
        if fill is not None:
            if urgent:
                fill.promote()
            return fill
        path = self._path(session, node)
        if not path or self._store == "remote":
            return None
        self._pin(session, 1)
        fits = self.hosts[node].expect(session.session_id, session.context_tokens)
        if not (fits or urgent):
            self._pin(session, -1)
            return None
        size = self._missing_bytes(session, node)
        self.fills[key] = SessionTransfer(path, size, lambda item: self._filled(session, node, item), urgent=urgent)
        return self.fills[key].start()

    def abandon(self, session: Session, node: int) -> None:
        """Stop loading a session's cache into a node's DRAM."""
        fill = self.fills.pop((session.session_id, node), None)
        if fill is not None:
            fill.cancel()
            self.hosts[node].forget(session.session_id)
            self._pin(session, -1)

    def load(
        self, session: Session, engine: SessionEngine, landed_tokens: int, on_chunk: Callable[[SessionTransfer], None]
    ) -> SessionTransfer | None:
        """Load a session's cache into an engine for its request; return None if no copy exists."""
        node = engine.node
        size = (session.context_tokens - landed_tokens) * self.bytes_per_token
        if self._store == "remote":
            return SessionTransfer([self.nics[node], engine.load_link], size, on_chunk, urgent=True).start()
        fill = self.fill(session, node, urgent=True)
        if fill is None and self.hosts[node].tokens(session.session_id) < session.context_tokens:
            return None
        self.hosts[node].use(session.session_id)
        ready = self.hosts[node].tokens(session.session_id) / session.context_tokens
        return SessionTransfer([engine.load_link], size, on_chunk, urgent=True, after=fill, ready_share=ready).start()

    def prefetch(self, session: Session, engine: SessionEngine, prefetched: Prefetched | None) -> None:
        """Load a session's cache into a node's DRAM before its request. If `prefetched` is given, load it into the
        engine too.
        """
        node = engine.node
        fill = self.fill(session, node, urgent=False)
        host = self.hosts[node]
        there = host.tokens(session.session_id)
        if fill is None and there < session.context_tokens:
            return
        if fill is None:
            host.use(session.session_id)
        if prefetched is not None and engine.memory.prefetch(prefetched):
            size = session.context_tokens * self.bytes_per_token
            prefetched.transfer = SessionTransfer(
                [engine.load_link],
                size,
                lambda item: self.use.landed(session.session_id, engine.node, item.chunk_bytes),
                urgent=False,
                after=fill,
                ready_share=there / session.context_tokens,
            ).start()

    def write_back(self, session: Session, engine: SessionEngine) -> None:
        """Store the KV that a turn added: in the node's DRAM and on the disk of the session's node, or in the store."""
        node, target = engine.node, session.context_tokens
        if self._store == "none":
            return
        if self._store == "remote":
            links, held = [engine.store_link, self.uplinks[node]], session.disk_booked
            session.disk_booked = target
        else:
            links, held = [engine.store_link], self.hosts[node].tokens(session.session_id)

        def written(transfer: SessionTransfer) -> None:
            if transfer.done and self._store != "remote":
                self.hosts[node].put(session.session_id, target)
                if self._store == "tiers":
                    self._write_disk(session, node, target)

        SessionTransfer(links, (target - held) * self.bytes_per_token, written, urgent=True).start()

    def place(self, session: Session, node: int) -> None:
        """Put a session's cache on a node at the start: on disk, and in DRAM if there is space."""
        session.disk_node = node
        if self._store == "tiers":
            session.disk_tokens = session.disk_booked = session.context_tokens
        host = self.hosts[node]
        room = host.capacity_tokens - host.used_tokens
        if self._store in {"tiers", "host"} and not session.demoted and session.context_tokens <= room:
            host.put(session.session_id, session.context_tokens)
        if self._store == "remote":
            session.disk_booked = session.context_tokens

    def check(self) -> None:
        """Raise if a link or a node's DRAM exceeds its capacity."""
        for link in (*self.nics, *self.uplinks, *self.disks):
            link.check()
        for host in self.hosts:
            host.check()

    def _path(self, session: Session, node: int) -> Sequence[SessionLink] | None:
        """Return the links from the best complete copy to a node's DRAM; empty if it is there already, None without
        a copy.
        """
        context = session.context_tokens
        if self.hosts[node].tokens(session.session_id) >= context:
            return ()
        if self._store == "remote":
            return (self.nics[node],)
        if self._store != "tiers":
            return None
        if any(host.tokens(session.session_id) >= context for host in self.hosts):
            return (self.nics[node],)
        if session.disk_tokens < context:
            return None
        disk = self.disks[session.disk_node]
        return (disk,) if session.disk_node == node else (disk, self.nics[node])

    def _pin(self, session: Session, pins: int) -> None:
        for host in self.hosts:
            host.pin(session.session_id, pins)

    def _missing_bytes(self, session: Session, node: int) -> float:
        return (session.context_tokens - self.hosts[node].tokens(session.session_id)) * self.bytes_per_token

    def _filled(self, session: Session, node: int, fill: SessionTransfer) -> None:
        if not fill.urgent:
            self.use.landed(session.session_id, node, fill.chunk_bytes)
        if not fill.done:
            return
        del self.fills[session.session_id, node]
        self._pin(session, -1)
        if self.hosts[node].arrived(session.session_id) and self._move:
            for other, host in enumerate(self.hosts):
                if other != node and not host.pinned(session.session_id):
                    host.drop(session.session_id)

    def _write_disk(self, session: Session, node: int, target: int) -> None:
        added = target - session.disk_booked
        session.disk_booked = target
        disk = self.disks[session.disk_node]
        links = [disk] if session.disk_node == node else [self.nics[session.disk_node], disk]
        self.hosts[node].pin(session.session_id)

        def written(transfer: SessionTransfer) -> None:
            if transfer.done:
                session.disk_tokens = max(session.disk_tokens, target)
                self.hosts[node].pin(session.session_id, -1)
                if session.demoted and session.context_tokens == target:
                    for host in self.hosts:
                        if not host.pinned(session.session_id):
                            host.drop(session.session_id)

        SessionTransfer(links, added * self.bytes_per_token, written, urgent=True).start()
