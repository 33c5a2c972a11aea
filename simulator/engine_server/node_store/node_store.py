"""One engine's node manager for its event loop: stores in the background, loads with a deadline."""

from __future__ import annotations

import asyncio
import time
from array import array
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from itertools import groupby
from typing import TYPE_CHECKING

import msgspec

from kvstore.connector.engine_params import KvOutcome, LoadInstruction
from kvstore.keys.keyring import Keyring
from kvstore.tiers.block_facts import BlockFacts
from kvstore.transfer.connection import PeerError
from kvstore.transfer.connection_pool import split_address
from kvstore.transfer.frames import MAX_KEYS, Describe, PageOf
from kvstore.transfer.transfer_client import TransferClient, TransferSettings
from simulator.engine_server.node_store.block_loader import BlockLoading, LoadCounts, ScaledLink, SimulatedBlockLoader
from simulator.engine_server.node_store.block_saver import ComputedBlocks, SaveCounts, SimulatedBlockSaver
from simulator.engine_server.node_store.payloads import Payloads, chain_hashes
from simulator.engine_server.node_store.prefetched import PrefetchedBlocks

if TYPE_CHECKING:
    from simulator.engine_server.settings import EngineSettings

_THREADS = 4
_SILENCE_S = 2.0
"""Seconds after which an unresponsive node is given up."""
_GRACE_S = 0.05
"""Seconds past its deadline after which a load is abandoned to its thread."""
_CLOSE_S = 1.0


class NodeStoreSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The engine's node and the payload size."""

    node: str
    """host:port of the engine's node manager."""
    keyring: Keyring | None
    name: str
    """The engine's name in the nodes' counts."""
    bytes_per_token: int = 1024
    blocks: int = 0
    """Blocks of the engine's memory."""
    link_bytes_per_s: float = 0.0
    """Scaled rate to other nodes, in bytes per second; 0 for the machine's rate."""


class NodeStore:
    """For use in one event loop. After closing, only transfers blocked by an unresponsive node can still run."""

    def __init__(self, settings: NodeStoreSettings, model: str, block_tokens: int) -> None:
        self._node, self._block_tokens = settings.node, block_tokens
        self._own_host, _ = split_address(settings.node)
        limits = TransferSettings(timeout_s=_SILENCE_S)
        self._client = TransferClient(settings.keyring, time.monotonic, None, limits, settings.name)
        self._payloads = payloads = Payloads(model, block_tokens, settings.bytes_per_token)
        self.prefetched = PrefetchedBlocks(settings.blocks, block_tokens)
        self._saver = SimulatedBlockSaver(self._client, settings.node, payloads)
        self._loader = SimulatedBlockLoader(
            self._client, settings.node, payloads, ScaledLink(settings.link_bytes_per_s)
        )
        self._threads = ThreadPoolExecutor(_THREADS, "kv-load")

    @property
    def saves(self) -> SaveCounts:
        """Number of saved blocks by outcome."""
        return self._saver.counts

    @property
    def loads(self) -> LoadCounts:
        """Number of loaded blocks by outcome."""
        return self._loader.counts

    def save(self, tokens: array[int], first: int, end: int, salt: str, order: LoadInstruction | None) -> None:
        """Queue blocks `first` … `end` of a prompt to be stored; return at once."""
        order, prompt_blocks = order or LoadInstruction(), len(tokens) // self._block_tokens
        for hint, group in groupby(range(first, end), lambda block: order.hint_at(block, prompt_blocks)):
            blocks = list(group)
            pin_s = order.pin_s if hint == "context_cache" else 0.0
            kept = msgspec.structs.replace(order, hint=hint, pin_s=pin_s)
            self._saver.add(ComputedBlocks(tokens, blocks[0], blocks[-1] + 1, salt, kept))

    async def load(
        self, tokens: array[int], held: int, salt: str, order: LoadInstruction, budget_s: float
    ) -> KvOutcome:
        """Load the blocks that the instruction allows after those already held; give up after `budget_s` seconds."""
        holders = [holder for holder in order.holders if self._may_reach(holder)]
        if order.load_blocks <= held:
            return KvOutcome()
        if not holders:
            return KvOutcome(reason="missing")
        wanted = BlockLoading(
            tokens=tokens, held=held, end=order.load_blocks, salt=salt, holders=holders, budget_s=budget_s
        )
        began = time.monotonic()
        work = asyncio.get_running_loop().run_in_executor(self._threads, self._loader.load, wanted)
        try:
            async with asyncio.timeout(budget_s + _GRACE_S):
                return await work
        except TimeoutError:
            return KvOutcome(seconds=time.monotonic() - began, reason="late")

    async def prefetch(self, order: LoadInstruction, salt: str) -> KvOutcome:
        """Load the order's blocks from the engine's own node into memory that no request uses yet."""
        loop, kept = asyncio.get_running_loop(), self.prefetched
        facts = await loop.run_in_executor(self._threads, self._described, order, salt)
        new = kept.lacking(order, facts)
        if not new:
            return KvOutcome(reason="" if facts else "missing")
        wanted = BlockLoading(
            tokens=array("I"), held=0, end=len(new), salt=salt, holders=[self._node], budget_s=_SILENCE_S
        )
        hashes = [item.chain_hash for item in new]
        outcome = await loop.run_in_executor(self._threads, self._loader.fetch, hashes, wanted)
        kept.keep(new[: outcome.loaded_blocks], order.prefetch_rank or 0)
        return outcome

    def _described(self, order: LoadInstruction, salt: str) -> list[BlockFacts]:
        """Return the node's facts of the order's blocks that this engine can use."""
        names = self._payloads.keys(salt)
        try:
            page = self._client.call(
                self._node, Describe(list(order.routing_keys()[: min(order.load_blocks, MAX_KEYS)]))
            )
        except (PeerError, TimeoutError):
            return []
        blocks = page.blocks if isinstance(page, PageOf) else []
        return [facts for facts, _ in blocks if facts.chain_hash and names.key(facts.chain_hash) == facts.key]

    def use_prefetched(self, tokens: array[int], held: int, salt: str) -> int:
        """Return how many blocks of a prompt after the held ones were prefetched. The prompt then has them."""
        if not self.prefetched:
            return 0
        hashes = chain_hashes(tokens, self._block_tokens, len(tokens) // self._block_tokens)
        return self.prefetched.use([self._payloads.keys(salt).key(item) for item in hashes[held:]])

    def settled(self, timeout_s: float) -> bool:
        """Block until all queued blocks are stored; return False on timeout."""
        return self._saver.settled(timeout_s)

    def close(self) -> None:
        """Stop; waiting blocks are dropped."""
        # First: the executor's shutdown does not end loads that run.
        self._loader.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._saver.close(_CLOSE_S)
        self._client.close()

    def _may_reach(self, holder: str) -> bool:
        """Return whether an address in a request is allowed: the node's host, or loopback."""
        try:
            host, _ = split_address(holder)
            return host == self._own_host or ip_address(host).is_loopback
        except (PeerError, ValueError):
            return False


def node_store(settings: EngineSettings) -> NodeStore | None:
    """Return the store of an engine, None for one without a node."""
    if not settings.kv_node:
        return None
    profile = settings.profile
    store = NodeStoreSettings(
        node=settings.kv_node,
        keyring=settings.kv_keyring,
        name=f"{settings.host}:{settings.port}",
        bytes_per_token=settings.kv_bytes_per_token,
        blocks=profile.num_blocks,
        # Model time runs `time_scale` times as fast as real time, and so does the model's link.
        link_bytes_per_s=profile.link_bytes_per_s * settings.kv_scale * settings.time_scale,
    )
    return NodeStore(store, settings.served_model, profile.block_tokens)
