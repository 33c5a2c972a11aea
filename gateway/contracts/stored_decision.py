"""One request that ended with its decision in full, as sent to and stored in the request log. Contains no prompt.

It travels in request batches (gateway.contracts.request_batch). Fields are only ever added, with defaults, so that
records of an earlier version stay readable.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

import msgspec

from gateway.contracts.advisory import StoredAdvisory
from gateway.contracts.hop import Hop
from gateway.contracts.regret import Regret
from gateway.contracts.traffic_row import TrafficRow
from routing.cost.cost_model import PrefillCost
from routing.values.decision import Decision

UNANSWERED = "unanswered"
"""Outcome of a request whose end was not reported until its reservation ran out."""
RUNNING = "running"
"""Outcome of a request that has not ended; such a record travels, but is not stored."""
DIGESTS = "digests of names in records"
"""Purpose of the key of `session_digest` (kvstore.keys.keyring)."""


class Known(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Facts about one candidate when it was scored. Ages in seconds; None: never reported."""

    engine_id: str
    name: str
    trust: str = ""
    """exact, degraded or blind."""
    report_age_s: float | None = None
    index_age_s: float | None = None
    """Since the last event of its index; None too where the index is built from dispatches."""


class StoredLoad(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """KV that the engine was ordered to load from node managers before the prefill, and the result."""

    node: str
    """Name of the node manager; the sender of the blocks, where it was reported."""
    ordered_blocks: int
    """Leading blocks of the prompt that it held."""
    blocks: int = 0
    """Those that were loaded; blocks that the engine held already did not travel."""
    bytes: int = 0
    seconds: float = 0.0
    """From the engine's first question to the last byte."""
    reason: str = ""
    """Why fewer came: missing, late or failed; untold: the engine reported nothing; empty: all came."""
    saved_tokens: int = 0
    """Prompt tokens that were not computed."""


class StoredDecision(TrafficRow, frozen=True, gc=False, array_like=False, omit_defaults=True):
    """A row of traffic without the names of its blocks, its decision, and the facts known then.

    Times as there: `*_at` in unix seconds, `*_after_s` in seconds since the request arrived; None: not known.
    """

    decision: Decision
    region: str
    """Of the pool."""
    served_model: str
    tenant_id: str
    key_source: str
    ttft_slo_s: float
    attempts: tuple[str, ...]
    error: str = ""
    share: float = 1.0
    """Share of decisions like this one that were kept: each represents 1 / share."""
    decided_after_s: float = 0.0
    dispatched_after_s: float | None = None
    handed_over_after_s: float | None = None
    believed_tokens: int = 0
    """Cached tokens of the prompt by the index, whatever the trust in it."""
    engine_prompt_tokens: int | None = None
    block_tokens: int = 1
    mismatch: str = ""
    """Why hits differ, a cause of gateway.contracts.hit_sample; empty: they do not, or the engine reports none."""
    known: tuple[Known, ...] = ()
    """In the order of the decision's candidates."""
    decode_engine_name: str = ""
    cost: PrefillCost | None = None
    """The cost model by which the chosen engine was estimated, and its speed."""
    speed: float = 1.0
    snapshot_version: int = 0
    snapshot_age_s: float | None = None
    slo_class: str = ""
    regret: Regret | None = None
    """Set by the request log: gateways leave it out (controlplane.request_log.hindsight)."""
    asked_after_s: float = 0.0
    """Until the gateway asked its router for an engine: its own time, no engine's."""
    load: StoredLoad | None = None
    """None: no load was ordered."""
    advisory: StoredAdvisory | None = None
    """None: none was open when it came."""
    hop: Hop | None = None
    """None: the region of its first contact served it."""
    may_defer: bool = False
    """Admission may have kept the request back before its engine was chosen."""
    overtaken_s: float = 0.0
    """Estimated prefills of later requests that were dispatched to its engine before it."""
    client_request_id: str = ""
    """The client's X-Request-Id; empty: it sent none."""
    asked_model: str = ""
    """The alias or LoRA adapter that it asked for; empty: the served model."""

    @property
    def decided_at(self) -> float:
        """When the decision was made, in unix seconds."""
        decision = self.decision
        return self.arrived_at + (decision.queued_s if decision.engine_id else self.finished_after_s or 0.0)


@lru_cache(maxsize=16_384)
def session_digest(key: bytes, session_id: str) -> str:
    """Return the name of a session in records, which reveals nothing without the key (DIGESTS)."""
    if not session_id:
        return ""
    return blake2b(session_id.encode(), digest_size=6, key=key).hexdigest()
