"""Head of a request that one region's gateway forwards to another's; the peer's proof signs it."""

from __future__ import annotations

import msgspec

from gateway.contracts.hop import Hop
from gateway.contracts.snapshot import ApiKeyEntry
from gateway.contracts.wire import WireForm

PATH = "/forward"
"""Below it, on the peers' port, the path of the client's request."""
WITHDRAW = "forward withdrawn"
"""A call with a decision's id: answered once no work on the request continues there, nor ever will."""
MAX_HOPS = 1
MAX_AGE_S = 3600.0


class ForwardHead(msgspec.Struct, frozen=True):
    """Sent with the client's own body and headers, but without its credentials, which the first contact has checked."""

    decision_id: str
    hop: Hop
    caller: ApiKeyEntry
    """Without its quotas, which the first contact keeps."""
    age_s: float
    """Since the request arrived at the first contact; the deadline counts from there."""
    body: str
    """BLAKE2b of the body, hex."""
    stamp: float
    """The newest of the destination's stamps that its first contact has (gateway.regions.work_lease)."""
    hops: int = 1


forward_heads = WireForm(ForwardHead, "the head of a forwarded request", limit=64 << 10)
