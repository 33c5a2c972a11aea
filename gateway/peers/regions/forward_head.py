"""Head of a request that one region's gateway forwards to another's. The peer's proof signs it."""

from __future__ import annotations

import msgspec

from gateway.contracts.snapshot import ApiKeyEntry
from gateway.contracts.wire import WireForm
from routing.values.hop import Hop

PATH = "/forward"
"""Path prefix on the peers' port, followed by the path of the client's request."""
WITHDRAW = "forward withdrawn"
"""A call with a decision's id, answered once no work on the request continues or will begin there."""
MAX_HOPS = 1
MAX_AGE_S = 3600.0


class ForwardHead(msgspec.Struct, frozen=True):
    """Sent with the client's body and headers, but without its credentials, which the first contact has checked."""

    decision_id: str
    hop: Hop
    caller: ApiKeyEntry
    """The caller's key without its quotas, which the first contact enforces."""
    age_s: float
    """Seconds since the request arrived at the first contact. The deadline counts from then."""
    body: str
    """BLAKE2b of the body, hex."""
    stamp: float
    """The newest stamp of the destination that its first contact has (gateway.peers.regions.work_lease)."""
    hops: int = 1


forward_heads = WireForm(ForwardHead, "the head of a forwarded request", limit=64 << 10)
