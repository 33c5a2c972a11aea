"""Under any order of operations, slots, locks, users and quotas agree, and nothing leaks."""

from __future__ import annotations

import random

import pytest

from kvstore.tiers.block_facts import DRAM, SSD, BlockFacts, Medium
from kvstore.tiers.eviction import EVICTIONS
from kvstore.transactions.block_record import BlockRecord
from kvstore.transactions.transactions import Allocation, Transactions
from tests.kvstore.kv_blocks import catalog, facts, key
from tests.kvstore.transactions.test_transactions import clear


class RandomNode:
    """A catalog and its transactions under random operations."""

    def __init__(self, seed: int, eviction: str) -> None:
        self.rng = random.Random(seed)
        self.held = catalog(tenant_quota_bytes=9000, pin_quota_bytes=4000, max_age_s=60.0, eviction=eviction)
        self.transactions = Transactions(self.held)
        self.now, self.number = 0.0, 0
        self.begun: list[str] = []
        self.writing: list[list[BlockRecord]] = []
        self.reading: list[list[BlockRecord | None]] = []
        self.filling: list[tuple[BlockRecord, Medium]] = []

    def step(self) -> None:
        self.now += self.rng.random() * 2
        self.number += 1
        names = self.rng.sample(range(24), self.rng.randint(1, 4))
        often = (self.store, self.store, self.allocate, self.write, self.end_write, self.commit, self.copy) * 2
        others = (self.reuse, self.abort, self.read, self.end_read, self.pin, self.leave, self.expire, self.order)
        self.rng.choice(often + others)(names)
        if self.rng.random() < 0.5:
            clear(self.held)
        self.held.check()
        self.transactions.check()

    def end(self) -> None:
        for records in self.writing:
            self.transactions.end_write(records, [b""] * len(records))
        for read in self.reading:
            self.held.close_read(read)
        for record, medium in self.filling:
            self.held.close_fill(record, medium, whole=False)
        self.transactions.expire(self.now + 100.0)
        self.held.expire(self.now + 1000.0)
        clear(self.held)
        self.held.check()

    def allocate(self, names: list[int]) -> None:
        parents = [self.rng.choice([None, 100, *range(24)]) for _ in names]
        pairs = [(name, above) for name, above in zip(names, parents, strict=True) if name != above]
        new = [facts(name, above, self.rng.choice("xy")) for name, above in pairs]
        self._begin([], new)

    def store(self, names: list[int]) -> None:
        self.allocate(names)
        tx_id = f"t{self.number}"
        records = self.transactions.begin_write(tx_id, self.transactions.new_keys(tx_id))
        if records:
            self.transactions.end_write(records, [bytes(16)] * len(records))
            self.transactions.commit(tx_id, self.now)

    def reuse(self, names: list[int]) -> None:
        self._begin([key(name) for name in names], [])

    def write(self, _names: list[int]) -> None:
        tx_id = self._one()
        keys = self.transactions.new_keys(tx_id)
        records = self.transactions.begin_write(tx_id, keys) if keys else None
        if records is not None:
            self.writing.append(records)

    def end_write(self, _names: list[int]) -> None:
        if self.writing:
            records = self.writing.pop(self.rng.randrange(len(self.writing)))
            self.transactions.end_write(records, [self.rng.choice([bytes(16)] * 5 + [b""]) for _ in records])

    def commit(self, _names: list[int]) -> None:
        self.transactions.commit(self._one(), self.now)

    def abort(self, _names: list[int]) -> None:
        self.transactions.abort(self._one())

    def read(self, names: list[int]) -> None:
        self.reading.append(self.held.open_read([key(name) for name in names]))

    def end_read(self, _names: list[int]) -> None:
        if self.reading:
            self.held.close_read(self.reading.pop(self.rng.randrange(len(self.reading))))

    def copy(self, names: list[int]) -> None:
        medium = self.rng.choice((DRAM, SSD))
        record = self.held.open_fill(key(names[0]), medium)
        if record is not None:
            self.filling.append((record, medium))
        if self.filling and self.rng.random() < 0.7:
            record, medium = self.filling.pop(self.rng.randrange(len(self.filling)))
            self.held.close_fill(record, medium, whole=self.rng.random() < 0.8)

    def pin(self, names: list[int]) -> None:
        keys = [key(name) for name in names]
        if self.rng.random() < 0.6:
            self.held.pin(keys, self.now + self.rng.uniform(0, 40), self.now)
        else:
            self.held.unpin(keys)

    def leave(self, names: list[int]) -> None:
        record = self.held.find(key(names[0]))
        if self.rng.random() < 0.2:
            self.held.purge(self.rng.choice("xy"))
        elif record is not None and record.visible:
            self.held.drop_copy(record, self.rng.choice((DRAM, SSD)))

    def expire(self, _names: list[int]) -> None:
        self.transactions.expire(self.now)
        self.held.expire(self.now)

    def order(self, _names: list[int]) -> None:
        self.held.evict_by(self.rng.choice(list(EVICTIONS)))

    def _begin(self, reused: list[bytes], new: list[BlockFacts]) -> None:
        lease_s = self.rng.uniform(0, 15)
        if isinstance(self.transactions.allocate(f"t{self.number}", reused, new, lease_s, self.now), Allocation):
            self.begun.append(f"t{self.number}")

    def _one(self) -> str:
        return self.rng.choice(self.begun[-4:] or ["none"])


@pytest.mark.parametrize("eviction", ["leaf_lru", "rlt"])
@pytest.mark.parametrize("seed", range(6))
def test_all_state_agrees_after_each_operation(seed: int, eviction: str) -> None:
    node = RandomNode(seed, eviction)
    stored = 0
    for _ in range(300):
        node.step()
        stored += sum(change.kind == "stored" for change in node.held.take_changes())
    node.end()
    assert stored > 20
    assert (len(node.held), node.held.used_slots(DRAM), node.held.used_slots(SSD)) == (0, 0, 0)
