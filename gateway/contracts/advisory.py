"""Advisories on the wire: between gateways, to the request log, and to the console."""

from __future__ import annotations

import msgspec

from gateway.contracts.wire import MIB, WireForm

TALLY_TOPIC = "advisory_tallies"
"""Last-value topic of each gateway; values are encoded AdvisoryTallies."""
PEER_TOPIC = "advisories"
"""Stream topic; values are encoded PeerAdvisories."""

USEFUL, LATE, SPURIOUS, OVERRULED = "useful", "late", "spurious", "overruled"
WITHDRAWN, REPLACED = "withdrawn", "replaced"
UNKNOWN, SHED, IGNORED, FORWARDED = "unknown", "shed", "ignored", "forwarded"
OUTCOMES = (USEFUL, LATE, SPURIOUS, OVERRULED, WITHDRAWN, REPLACED, UNKNOWN, SHED, IGNORED, FORWARDED)
"""useful: its request arrived after everything was in place; late: the request arrived before the moved KV; overruled:
the reserved engine accepted no work by then, or another engine was clearly cheaper; spurious: no request arrived in
time; withdrawn: by its sender; replaced: by a newer advisory, or by its request; unknown: no gateway knows the session;
shed: over a limit; ignored: the policy accepts no advisories; forwarded: to the gateway that decides.
"""
RESERVED = "reserved"
PREFETCHING = "prefetching"
"""States of an open advisory."""


class Advisory(msgspec.Struct, frozen=True, kw_only=True):
    """Announces a session's next request (SYMPHONY Fig. 7)."""

    tenant_id: str
    session_id: str
    served_model: str = ""
    """Empty: the model of the session's last request."""
    expected_arrival_s: float | None = None
    """Seconds from now; None: unknown."""
    priority: int = 1
    """Lower is more urgent."""
    source: str = ""
    """Id of the API key that sent the advisory, or that its token belongs to."""


class PeerAdvisory(msgspec.Struct, frozen=True):
    """A gateway's message to all others about a session whose requests it does not decide."""

    sender: str
    advisory: Advisory
    said_at: float
    """Unix seconds of the sender's clock."""
    withdrawn: bool = False


class SourceTally(msgspec.Struct):
    """Advisories of one source in one pool. Mutable."""

    pool_id: str
    tenant_id: str
    source: str
    received: int = 0
    # msgspec copies an empty default for each instance.
    outcomes: dict[str, int] = {}
    bytes_moved: int = 0
    bytes_useless: int = 0
    saved_tokens: int = 0
    """Prompt tokens that engines loaded from moved blocks."""
    engine_bytes: int = 0
    """Bytes that engines prefetched into their own memory."""
    useful_share: float = 1.0
    backs_off: bool = False


class PoolTally(msgspec.Struct):
    """Requests of known sessions in one pool, with figures that show whether advisories would pay off. Mutable."""

    pool_id: str
    rule: str = "off"
    advised: int = 0
    """Requests with a first token that an advisory announced."""
    advised_ttft_s: float = 0.0
    """Sum of the TTFTs of the `advised` requests."""
    others: int = 0
    others_ttft_s: float = 0.0
    sessions: int = 0
    """Requests that named a session."""
    requests: int = 0
    prompt_tokens: int = 0
    loads: int = 0
    """Requests that loaded KV from a node."""
    load_s: float = 0.0
    """Sum of the seconds that these loads took."""


class AdvisoryTallies(msgspec.Struct, frozen=True):
    """Counts of one gateway since its start."""

    gateway: str
    since: float
    """Unix seconds."""
    at: float
    sources: list[SourceTally]
    pools: list[PoolTally]


_tallies = WireForm(AdvisoryTallies, "a tally of advisories", limit=MIB)
_peer = WireForm(PeerAdvisory, "a gateway's advisory", limit=MIB)
encode_tallies, decode_tallies = _tallies.encode, _tallies.decode
encode_peer, decode_peer = _peer.encode, _peer.decode
