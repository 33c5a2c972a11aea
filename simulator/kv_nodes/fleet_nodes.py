"""The node managers of a simulated fleet: engines store computed blocks there, and load blocks if the router decides
so.

Catalog, load ledger, and planners are the production code. A load uses the holder's link, or the engine's link if the
holder is its own node; blocks that are only on SSD are read in parallel. A load stops once it takes longer than
computing, and keeps the blocks received so far, as in the engine server.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from planning.kv_moves.kv_move import REPLICATE, KvMove
from planning.kv_moves.prefetch import prefetch
from planning.kv_moves.replica_count import Replicas
from planning.kv_moves.replication import HotLoads
from routing.values.decision import Queued
from routing.values.inference_request import InferenceRequest
from routing.values.load_options import Fetch
from simulator.engine_models.engine_profile import EngineProfile
from simulator.kv_nodes.kv_nodes_spec import KvNodesSpec
from simulator.kv_nodes.node_cache import NodeStores, Tiers
from simulator.link import Link


class MoveWorth:
    """Counts orders, their blocks, and the tokens saved per planner. Mutable state: also which planner made each
    copy.
    """

    def __init__(self) -> None:
        self.moved_blocks = 0
        self.prefetches = self.replicas = 0
        self.freed_blocks = 0
        """Blocks of replicas that were dropped for lack of loads."""
        self.prefetch_saved_tokens = self.replica_saved_tokens = 0
        self._copies: dict[tuple[str, int], bool] = {}

    def moved(self, node: str, keys: Sequence[int], *, replica: bool) -> None:
        """Record an order that moved blocks to a node."""
        self.moved_blocks += len(keys)
        self.prefetches += not replica
        self.replicas += replica
        self._copies.update(((node, key), replica) for key in keys)

    def loaded(self, node: str, keys: Sequence[int], block_tokens: int) -> None:
        """Record that an engine loaded blocks from a node."""
        planners = [self._copies.get((node, key)) for key in keys]
        self.prefetch_saved_tokens += planners.count(False) * block_tokens
        self.replica_saved_tokens += planners.count(True) * block_tokens


At = Callable[[float, Callable[[], None]], None]
"""Schedules a call at a virtual time."""


class NodeLoading(NamedTuple):
    """A load in progress."""

    blocks: int
    """Number of the prompt's leading blocks that the engine holds when the load ends."""
    ends_s: float


class FleetNodes:
    """The node managers. Mutable: caches, links, ledger, and orders in progress by destination and last block."""

    def __init__(self, spec: KvNodesSpec, profile: EngineProfile, at: At) -> None:
        self.spec = spec
        self._at = at
        self._profile = profile
        self._block_bytes = profile.block_tokens * profile.kv_bytes_per_token
        self.names = [f"kv-{number + 1}" for number in range(spec.nodes)]
        sizes = max(1, spec.dram_tokens // profile.block_tokens), spec.ssd_tokens // profile.block_tokens
        self._stores = NodeStores(self.names, *sizes, self._block_bytes, eviction=spec.eviction)
        self.caches, self.ledger = self._stores.caches, self._stores.ledger
        self._publish_changes = self._stores.publish_changes
        self.uplinks = {name: Link(profile.link_bytes_per_s, spec.latency_s) for name in self.names}
        self.disks = {name: Link(spec.ssd_bytes_per_s) for name in self.names}
        self.own_links: dict[str, Link] = {}
        self.worth = MoveWorth()
        self.loads = self.loaded_blocks = 0
        self._hot, self._replicas = HotLoads(), Replicas()
        self._shrink_at = 0.0
        self._moving: set[tuple[str, int]] = set()
        self._waiting: dict[str, deque[tuple[KvMove, int]]] = {name: deque() for name in self.names}
        """By node, the orders for which it will send, and their blocks."""

    def set_engines(self, engine_ids: Sequence[str]) -> None:
        """Assign a node to each engine, in turn or as specified."""
        homes = self.spec.homes
        numbers = {
            engine_id: homes[at % len(homes)] if homes else at % len(self.names)
            # By id, so that homes do not depend on the order of joining.
            for at, engine_id in enumerate(sorted(engine_ids))
        }
        self._stores.set_homes({name: self.names[number] for name, number in numbers.items() if number >= 0})

    # -- engine operations

    def stored(self, engine_id: str, keys: Sequence[int], parent: int | None, now: float) -> None:
        """Store blocks that an engine has computed on the engine's node; they follow the block `parent` of their
        prompt.
        """
        home = self.ledger.homes.get(engine_id)
        if home is not None:
            self.caches[home].put(keys, now, parent=parent)
            self._publish_changes(home)
        self._shrink(now)

    def saved_s(self, request: InferenceRequest, held: int, blocks: int, speed: float) -> float:
        """Return the seconds of prefill that a load after `held` blocks saves an engine of this speed."""
        profile, tokens = self._profile, request.prompt_tokens
        hits = [profile.hit_tokens(tokens, count) for count in (held, max(held, blocks))]
        without_s, with_s = (profile.prefill_s(tokens, hit) / speed for hit in hits)
        return without_s - with_s

    def load(
        self, fetch: Fetch, request: InferenceRequest, engine_id: str, held: int, now: float, budget_s: float
    ) -> NodeLoading | None:
        """Begin a load after `held` blocks; return None if no block is available or the engine needs none."""
        home = self.ledger.homes.get(engine_id)
        if home is None or fetch.blocks <= held:
            return None
        keys = request.keys[: fetch.blocks]
        tiers = self.caches[fetch.node].read(keys, now)
        self._publish_changes(fetch.node)
        if tiers.blocks <= held:
            return None
        wanted = tiers.blocks - held
        blocks, ends_s, ssd_blocks = self._carry(fetch.node, home, engine_id, (held, tiers), now, budget_s)
        if blocks < wanted:
            # From then on, computing is as fast as the rest of the load.
            ends_s = now + budget_s
        self.loads += 1
        if not blocks:
            late = engine_id, fetch.node, wanted, budget_s, ends_s, tiers.blocks - max(held, tiers.dram)
            self._at(ends_s, lambda: self.ledger.late(*late, request.request_id))
            return NodeLoading(held, ends_s)
        self.loaded_blocks += blocks
        size, seconds = blocks * self._block_bytes, ends_s - now
        # The router learns from a load when it has ended, as from an engine's report.
        report = engine_id, fetch.node, blocks, size, seconds, ends_s, ssd_blocks, request.request_id
        self._at(ends_s, lambda: self.ledger.loaded(*report))
        self.worth.loaded(fetch.node, keys[held : held + blocks], request.block_tokens)
        self._replicas.loaded(fetch.node, keys[: held + blocks], now)
        if self.spec.orders and home != fetch.node:
            self._order(self._hot.loaded(keys[: held + blocks], home, fetch.node, self.ledger, now), now)
        return NodeLoading(held + blocks, ends_s)

    def queued(self, request: InferenceRequest, queued: Queued, now: float) -> None:
        """Order transfers of the blocks that a queued request will load."""
        if self.spec.orders and queued.decision.engine_id and queued.loads is not None:
            self._order(prefetch(request, queued.decision, queued.loads), now)

    def check(self) -> None:
        """Raise AssertionError if a part is inconsistent, or a link has carried more than its bandwidth allows."""
        self._stores.check()
        for link in (*self.uplinks.values(), *self.disks.values(), *self.own_links.values()):
            link.check()

    # -- inner

    def _carry(
        self, node: str, home: str, engine_id: str, part: tuple[int, Tiers], now: float, budget_s: float
    ) -> tuple[int, float, int]:
        """Carry the blocks that fit the time budget; return their number, the last arrival, and the number from SSD."""
        held, tiers = part
        size, link, disk = self._block_bytes, self._link(node, home, engine_id), self.disks[node]
        in_dram = max(0, tiers.dram - held)
        fits = int(link.bytes_within(now, budget_s) / size)
        if tiers.blocks > tiers.dram:
            # The disk reads while the link carries, so both have the whole budget.
            fits = min(fits, in_dram + int(disk.bytes_within(now, budget_s) / size))
        blocks = min(tiers.blocks - held, fits)
        if not blocks:
            return 0, now + budget_s, 0
        ssd_blocks = max(0, blocks - in_dram)
        read_s = disk.carry(ssd_blocks * size, now) if ssd_blocks else now
        return blocks, max(link.carry(blocks * size, now), read_s), ssd_blocks

    def _link(self, node: str, home: str, engine_id: str) -> Link:
        if node != home:
            return self.uplinks[node]
        link = self.own_links.get(engine_id)
        if link is None:
            link = self.own_links[engine_id] = Link(self.spec.own_bytes_per_s, self.spec.latency_s)
        return link

    def _order(self, move: KvMove | None, now: float) -> None:
        """Move blocks to another node, or from a node's SSD to its DRAM; at most one order per destination at a
        time.
        """
        if move is None or (move.target, move.keys[-1]) in self._moving:
            return
        destination = move.target, move.keys[-1]
        target = self.caches[move.target]
        if move.source == move.target:
            target.read(move.keys, now)
            self._publish_changes(move.target)
            return
        came = self.caches[move.source].holds(move.keys).blocks
        if not came:
            return
        self._moving.add(destination)
        waiting = self._waiting[move.source]
        waiting.append((move, came))
        if len(waiting) == 1:
            self._carry_on(move.source, 0, now)

    def _carry_on(self, source: str, came: int, now: float) -> None:
        """Carry the blocks of a node's orders one after another, while no request's load uses the link.

        Blocks that requests wait for have precedence; other blocks delay them by at most one block.
        """
        link, waiting = self.uplinks[source], self._waiting[source]
        move, wanted = waiting[0]
        at_s = link.free_at
        if at_s <= now and came < wanted:
            link.carry(self._block_bytes, now)
            at_s, came = link.free_at, came + 1
        if at_s > now:
            self._at(at_s, lambda: self._carry_on(source, came, at_s))
            return
        self._at(now + link.latency_s, lambda: self._moved(move, wanted, now + link.latency_s))
        waiting.popleft()
        if waiting:
            self._carry_on(source, 0, now)

    def _moved(self, move: KvMove, came: int, now: float) -> None:
        self._moving.discard((move.target, move.keys[-1]))
        keys = move.keys[:came]
        self.caches[move.target].put(keys, now)
        self.worth.moved(move.target, keys, replica=move.planner == REPLICATE)
        self._publish_changes(move.target)
        if move.planner == REPLICATE and came == len(move.keys):
            self._replicas.made(move.target, keys, "", now)

    def _shrink(self, now: float) -> None:
        """Drop a replica without loads, at most one per second, after checking that the other copy is complete."""
        if now < self._shrink_at:
            return
        self._shrink_at = now + 1.0
        cold = self._replicas.cold(self.ledger.holdings, now)
        if cold is not None and self.caches[cold[0].source].holds(cold[0].keys).blocks == len(cold[0].keys):
            self.worth.freed_blocks += self.caches[cold[0].target].drop(cold[0].keys, now)
            self._publish_changes(cold[0].target)
