"""Changes the number of copies of a prefix, as operators order it. The pool's gateway plans and runs the moves."""

from __future__ import annotations

import time

from django.db import transaction

from controlplane.fleet.models.pool import Pool
from controlplane.platform import audit
from controlplane.platform.actor import Actor
from controlplane.platform.bus import get_bus
from controlplane.platform.field_problems import problem
from controlplane.platform.role import Role
from controlplane.platform.roles import require
from gateway.contracts.kv_move import MAX_COPIES, PREFIX_NAME, REPLICAS, ReplicaOrder, encode_replicas


def set_copies(pool: Pool, prefix: str, copies: int, *, actor: Actor, why: str = "") -> Pool:
    """Order this many copies of a prefix of the pool's recent prompts, named by the key of its last block.

    Copies are on different nodes. The gateway ignores a prefix that it does not know. Raises NotAllowedError,
    InvalidFieldsError.
    """
    require(actor, Role.OPERATOR, pool)
    if PREFIX_NAME(prefix) is None:
        raise problem("prefix", "Send the prefix as 16 hex digits.")
    if not 1 <= copies <= MAX_COPIES:
        raise problem("copies", f"Send a number of copies from 1 to {MAX_COPIES}.")
    order = ReplicaOrder(pool_id=pool.slug, at=time.time(), prefix=prefix, copies=copies)
    with transaction.atomic():
        audit.record_for(actor, "kv_prefix.copies", pool, after={"prefix": prefix, "copies": copies}, why=why)
        transaction.on_commit(lambda: get_bus().publish(REPLICAS + pool.slug, encode_replicas(order)))
    return pool
