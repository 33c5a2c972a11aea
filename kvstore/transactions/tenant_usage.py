"""Bytes that each tenant stores on a node, and which of its blocks to evict if it exceeds its quota."""

from __future__ import annotations

from kvstore.tiers.leaf_lru import LeafLru
from kvstore.transactions.block_record import BlockRecord


class _Tenant:
    def __init__(self) -> None:
        self.bytes = 0
        self.pinned_bytes = 0
        self.pinned: dict[bytes, BlockRecord] = {}
        self.order = LeafLru()


class TenantUsage:
    """Usage of tenants with blocks. Mutable state: `_tenants`. A block counts once, even if it is in several tiers."""

    def __init__(self, quota_bytes: int, pin_quota_bytes: int) -> None:
        self.quota_bytes, self.pin_quota_bytes = quota_bytes, pin_quota_bytes
        self._tenants: dict[str, _Tenant] = {}

    def __len__(self) -> int:
        return len(self._tenants)

    def used(self, tenant: str) -> int:
        """Return the bytes of a tenant's blocks."""
        usage = self._tenants.get(tenant)
        return usage.bytes if usage else 0

    def add(self, record: BlockRecord) -> None:
        """Count a block."""
        facts = record.facts
        tenant = self._tenants.setdefault(facts.tenant, _Tenant())
        tenant.bytes += facts.length
        tenant.order.add(facts.key, facts.parent)

    def remove(self, record: BlockRecord) -> None:
        """Stop counting a block, which also ends its pin."""
        facts = record.facts
        tenant = self._tenants[facts.tenant]
        tenant.bytes -= facts.length
        tenant.order.remove(facts.key)
        if not tenant.bytes:
            del self._tenants[facts.tenant]

    def set_evictable(self, record: BlockRecord, evictable: bool) -> None:
        """Set whether a block can be evicted for its tenant's quota."""
        self._tenants[record.facts.tenant].order.set_evictable(record.facts.key, evictable)

    def victim(self, tenant: str, bytes_wanted: int) -> bytes | None:
        """Return the tenant's oldest evictable leaf if `bytes_wanted` more would exceed its quota, else None."""
        usage = self._tenants.get(tenant)
        if usage is None or usage.bytes + bytes_wanted <= self.quota_bytes:
            return None
        return usage.order.victim()

    def fits(self, tenant: str, bytes_wanted: int) -> bool:
        """Return whether the tenant can store `bytes_wanted` more."""
        return self.used(tenant) + bytes_wanted <= self.quota_bytes

    def pin(self, record: BlockRecord) -> bool:
        """Count a block as pinned. Return False if the tenant's quota of pinned bytes does not allow it."""
        tenant = self._tenants[record.facts.tenant]
        if tenant.pinned_bytes + record.facts.length > self.pin_quota_bytes:
            return False
        tenant.pinned_bytes += record.facts.length
        tenant.pinned[record.facts.key] = record
        return True

    def unpin(self, record: BlockRecord) -> None:
        """Stop counting a block as pinned."""
        tenant = self._tenants[record.facts.tenant]
        tenant.pinned_bytes -= record.facts.length
        del tenant.pinned[record.facts.key]

    def pinned(self) -> dict[bytes, BlockRecord]:
        """Return the pinned blocks of all tenants by key."""
        return {key: record for tenant in self._tenants.values() for key, record in tenant.pinned.items()}

    def pinned_bytes(self, tenant: str) -> int:
        """Return the tenant's pinned bytes."""
        usage = self._tenants.get(tenant)
        return usage.pinned_bytes if usage else 0

    def check(self, records: list[BlockRecord]) -> None:
        """Raise AssertionError unless bytes and pinned bytes agree with the records."""
        for name, tenant in self._tenants.items():
            tenant.order.check()
            mine = [record for record in records if record.facts.tenant == name]
            if tenant.bytes != sum(record.facts.length for record in mine):
                raise AssertionError(f"{tenant.bytes} bytes of {name!r} are counted wrongly")
            pinned = {record.facts.key: record for record in mine if record.pinned_until}
            if tenant.pinned_bytes != sum(record.facts.length for record in pinned.values()):
                raise AssertionError(f"{tenant.pinned_bytes} pinned bytes of {name!r} are counted wrongly")
            if tenant.pinned != pinned:
                raise AssertionError(f"blocks of {name!r} are listed as pinned that are not, or not listed")
        if set(self._tenants) != {record.facts.tenant for record in records}:
            raise AssertionError("a tenant without blocks is counted, or one with blocks is not")
