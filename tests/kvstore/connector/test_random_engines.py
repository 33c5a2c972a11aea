"""Two engines that share a node, with many random prompts and faults: no block ever holds another block's bytes."""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Sequence

import pytest

from kvstore.backends.backend import BackendSettings
from kvstore.backends.node_backend import NodeBackend
from kvstore.connector import block_loader
from kvstore.connector.engine_params import outcome_in
from kvstore.connector.scheduler_side import SchedulerSide
from kvstore.connector.step_messages import StepJobs
from kvstore.connector.worker_side import WorkerSide
from kvstore.node.node_manager import NodeManager
from kvstore.tiers.block_facts import DRAM
from tests.kvstore.connector.engine_blocks import FORMAT, PAYLOAD, TOKENS, Memory, Request, progress, request, settings
from tests.kvstore.kv_blocks import KEYRING, address, node
from tests.patience import wait_until

BLOCKS, REQUESTS = 16, 200
GONE = "127.0.0.1:1"


def content(chain_hash: bytes) -> bytes:
    """Return the computed content of a block with this hash."""
    return hashlib.shake_256(chain_hash).digest(PAYLOAD)


class Engine:
    """vLLM's calls of a connector, one request at a time. Mutable: its cache, hash → block, oldest first."""

    def __init__(self, at: str, *, layer_wise: bool) -> None:
        self.memory = Memory(BLOCKS)
        self.cache: dict[bytes, int] = {}
        self.free = list(range(BLOCKS))
        self.scheduler = SchedulerSide(settings(node=at, store_again_s=20.0, layer_wise=layer_wise), TOKENS)
        self.scheduler.evict = self.evict
        self.scheduler.payload_bytes = PAYLOAD
        backend = NodeBackend(BackendSettings(address=at, keyring=KEYRING), time.monotonic)
        self.worker = WorkerSide(settings(node=at), backend, self.memory, FORMAT, time.monotonic)

    def serve(self, asked: Request, now: float) -> int:
        """Serve a request; return how many of its blocks were loaded."""
        hashes = asked.block_hashes
        local = next((index for index, chain_hash in enumerate(hashes) if chain_hash not in self.cache), len(hashes))
        self.scheduler.add(asked, "")
        # The estimates of an engine whose loads are always faster.
        self.scheduler.estimate.token_s, self.scheduler.estimate.byte_s = 1.0, 1e-9
        tokens = self.scheduler.matched(asked, local * TOKENS, now) or 0
        blocks = [
            *(self.cache[hash_] for hash_ in hashes[:local]),
            *self._allocate(len(hashes) - local, hashes[:local]),
        ]
        if self.scheduler.is_layered(asked.request_id):
            return self._serve_layered(asked, blocks, local, tokens, now)
        loaded = self._load(asked, blocks, tokens, now) if tokens else 0
        for index in range(local, local + loaded):
            assert self.memory.block(blocks[index]) == content(hashes[index])
        self._compute(hashes, blocks, local + loaded)
        self._step(self.scheduler.step([progress(asked.request_id, asked.num_tokens, blocks)], 0, now))
        self.cache |= dict(zip(hashes, blocks, strict=True))
        outcome = outcome_in(self.scheduler.finished(asked.request_id))
        assert (outcome.loaded_blocks if outcome else 0) == loaded
        return loaded

    def evict(self, blocks: set[int]) -> None:
        """Remove blocks from the cache, as vLLM does on request."""
        self.cache = {chain_hash: block_id for chain_hash, block_id in self.cache.items() if block_id not in blocks}

    def _serve_layered(self, asked: Request, blocks: Sequence[int], local: int, tokens: int, now: float) -> int:
        """Load and compute in one step, and once more where the load failed."""
        hashes = asked.block_hashes
        self.scheduler.allocated(asked, blocks, tokens)
        asked.num_computed_tokens = asked.num_tokens
        jobs = self.scheduler.step([progress(asked.request_id, asked.num_tokens, blocks)], 0, now)
        self.cache |= dict(zip(hashes, blocks, strict=True))
        self.worker.begin(jobs)
        self.worker.start_loads()
        for layer in range(4):
            self.worker.wait_for_layer(str(layer))
        planned = local + tokens // TOKENS
        right = all(self.memory.block(blocks[index]) == content(hashes[index]) for index in range(local, planned))
        self._compute(hashes if right else [b"wrong" for _ in hashes], blocks, planned)
        self.worker.save()
        _, failed = self.worker.take_ended()
        report = self.worker.take_report()
        assert report is not None
        self.scheduler.report(report, now)
        loaded = report.ends[0].outcome.loaded_blocks
        assert failed == set(blocks[local + loaded : planned])
        assert right or failed
        if failed:
            assert asked.num_computed_tokens == (local + loaded) * TOKENS
            assert not set(hashes[local + loaded :]) & self.cache.keys()
        for index in range(local, local + loaded):
            assert self.memory.block(blocks[index]) == content(hashes[index])
        self._compute(hashes, blocks, local + loaded)
        self._step(self.scheduler.step([progress(asked.request_id, asked.num_tokens, blocks)], 0, now))
        self.cache |= dict(zip(hashes, blocks, strict=True))
        outcome = outcome_in(self.scheduler.finished(asked.request_id))
        assert outcome is not None
        assert outcome.loaded_blocks == loaded
        return loaded

    def _compute(self, hashes: Sequence[bytes], blocks: Sequence[int], first: int) -> None:
        for index in range(first, len(hashes)):
            self.memory.data[blocks[index] * PAYLOAD : (blocks[index] + 1) * PAYLOAD] = content(hashes[index])

    def _load(self, asked: Request, blocks: Sequence[int], tokens: int, now: float) -> int:
        self.scheduler.allocated(asked, blocks, tokens)
        jobs = self.scheduler.step([], 0, now)
        self._step(jobs)
        ended: set[str] = set()
        failed: set[int] = set()

        def has_ended() -> bool:
            now_ended, now_failed = self.worker.take_ended()
            ended.update(now_ended)
            failed.update(now_failed)
            return bool(ended)

        wait_until(has_ended)
        report = self.worker.take_report()
        assert report is not None
        self.scheduler.report(report, now)
        ordered = jobs.loads[0].block_ids
        return next((index for index, block_id in enumerate(ordered) if block_id in failed), len(ordered))

    def _step(self, jobs: StepJobs) -> None:
        self.worker.begin(jobs)
        self.worker.start_loads()
        self.worker.save()

    def _allocate(self, count: int, kept: Sequence[bytes]) -> list[int]:
        while len(self.free) < count:
            oldest = next(item for item in self.cache if item not in kept)
            self.free.append(self.cache.pop(oldest))
        return [self.free.pop(0) for _ in range(count)]


def _fault(manager: NodeManager, rng: random.Random) -> None:
    """Flip a byte of a block in the node's memory, or drop a tenant's blocks."""
    records = [record for record in manager.store.catalog.page(0, 1000) if DRAM in record.slots]
    if rng.random() < 0.1:
        manager.store.purge("acme")
    elif records:
        manager.store.arena.view(rng.choice(records).slots[DRAM], PAYLOAD)[rng.randrange(PAYLOAD)] ^= 0xFF


@pytest.mark.parametrize("layer_wise", [False, True], ids=["beside steps", "by layers"])
@pytest.mark.parametrize("seed", range(3))
def test_loaded_blocks_equal_computed_blocks(seed: int, *, layer_wise: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_loader, "MIN_PART_BYTES", 1)
    rng, loaded = random.Random(seed), 0
    with node(slots={"dram_slots": 40}) as manager:
        engines = [Engine(address(manager), layer_wise=layer_wise) for _ in range(2)]
        try:
            for number in range(REQUESTS):
                holders = rng.choice([[address(manager)], [GONE, address(manager)], [GONE]])
                blocks = rng.randint(1, 8)
                asked = request(
                    f"r{number}",
                    blocks=blocks,
                    prompt=rng.randrange(6),
                    load_blocks=rng.randint(0, blocks),
                    holders=holders,
                    tenant="acme",
                )
                engine = rng.choice(engines)
                loaded += engine.serve(asked, float(number))
                if rng.random() < 0.1:
                    assert engine.worker.saver is not None
                    assert engine.worker.saver.settle(20.0)
                    _fault(manager, rng)
            assert loaded > REQUESTS // 8
            assert manager.store.counts.corrupt[DRAM] > 0
        finally:
            for engine in engines:
                engine.worker.close()
