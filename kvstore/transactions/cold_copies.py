"""Select copies to drop because another node holds the blocks and no engine reads them here (`change_replica`)."""

from __future__ import annotations

from collections.abc import Sequence

from kvstore.transactions.block_catalog import BlockCatalog
from kvstore.transactions.block_record import BlockRecord


def drop_cold(catalog: BlockCatalog, keys: Sequence[bytes], unread_since: float) -> list[BlockRecord]:
    """Remove blocks of a prompt that are unused, unlocked, unpinned, unexpected, and unread since `unread_since`.

    The caller has ensured that another node holds them. Returns the removed blocks.
    """
    dropped = list[BlockRecord]()
    # The last block first, and none before one that follows it here: without its beginning a block is of no use.
    for key in reversed(keys):
        record = catalog.find(key)
        if record is None or not record.visible or record.busy or record.pinned_until or record.filling:
            continue
        if record.used_at > unread_since or key in catalog.expected or catalog.is_followed(record):
            continue
        catalog.forget(record)
        dropped.append(record)
    return dropped
