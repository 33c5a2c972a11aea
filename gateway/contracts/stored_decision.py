"""One ended request with its complete decision, as stored in the request log. It contains no prompt.

It is sent in request batches (gateway.contracts.request_batch). New fields are only added, with defaults, so that
records of earlier versions stay readable.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

import msgspec

from gateway.contracts.regret import Regret
from gateway.contracts.traffic_row import TrafficRow
from routing.advisories.advised_sessions import StoredAdvisory
from routing.cost.cost_model import PrefillCost
from routing.values.decision import Decision
from routing.values.hop import Hop

UNANSWERED = "unanswered"
"""Outcome of a request whose end was not reported before its reservation expired."""
RUNNING = "running"
"""Outcome of a request that has not ended. Such a record is sent but not stored."""
DOOR_NAMES = {
    "proxy": "Headway's proxy", "api": "the decision API", "nginx": "nginx", "haproxy": "HAProxy", "envoy": "Envoy",
    "client": "the Python client",
}  # fmt: skip
"""StoredDecision.door in words."""
DIGESTS = "digests of names in records"
"""Purpose from which the `session_digest` key is derived (kvstore.keys.keyring)."""


class Known(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Facts about one candidate when it was scored. Ages in seconds; None: never reported."""

    engine_id: str
    name: str
    trust: str = ""
    """exact, degraded or blind."""
    report_age_s: float | None = None
    index_age_s: float | None = None
    """Seconds since the last event of its index; None also if the index is built from dispatches."""


class TokenizerWait(msgspec.Struct, frozen=True, gc=False):
    """Seconds for which the request waited for an engine's tokenizer."""

    engine_id: str
    name: str
    seconds: float


class FailedAttempt(msgspec.Struct, frozen=True, gc=False):
    """An attempt before the last one. Times in seconds since the request's arrival."""

    engine_id: str
    name: str
    cause: str
    """Why it was left: a cause in gateway.pools.engines.breaker, or handoff."""
    begun_after_s: float
    """When the engine was chosen."""
    ended_after_s: float


class StoredLoad(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """KV that the engine was instructed to load from node managers before the prefill, and the result."""

    node: str
    """Name of the node manager, or of the reported sender of the blocks."""
    ordered_blocks: int
    """Leading blocks of the prompt that the node held."""
    blocks: int = 0
    """Blocks that were loaded. Blocks that the engine already held were not transferred."""
    bytes: int = 0
    seconds: float = 0.0
    """Seconds from the engine's first query to the last byte."""
    reason: str = ""
    """Why fewer blocks were loaded: missing, late or failed; untold: the engine did not report why; empty: all
    were loaded.
    """
    saved_tokens: int = 0
    """Prompt tokens that the engine did not have to compute."""
    inferred: bool = False
    """Whether the load is inferred from the engine's cached tokens, because it reported none."""


class ServiceStory(msgspec.Struct, frozen=True, gc=False):
    """What happened to a request that named a service."""

    service: str
    asked: str
    """The name that the client sent: the service's, or an alias."""
    tried: tuple[tuple[str, str], ...] = ()
    """Pools that did not serve it, in order, each with the code of its rejection; late: its wait was too long."""
    provider: str = ""
    """Host of the external provider that the request was sent to; empty: none."""
    provider_model: str = ""
    status: int = 0
    """The provider's status; 0: it did not answer."""
    withheld: str = ""
    """Why the service's provider did not get a request that no pool served; empty: it got it, or there is none."""
    cost: float | None = None
    """Dollars for the provider's answer; None: its usage is unknown."""


class StoredDecision(TrafficRow, frozen=True, gc=False, array_like=False, omit_defaults=True):
    """A TrafficRow without its block names, with the decision and the facts known at that time.

    Times as in TrafficRow: `*_at` in unix seconds, `*_after_s` in seconds since the request arrived; None: not known.
    """

    decision: Decision
    region: str
    """The pool's region."""
    served_model: str
    tenant_id: str
    key_source: str
    ttft_slo_s: float
    attempts: tuple[str, ...]
    error: str = ""
    share: float = 1.0
    """Share of similar decisions that were kept: each represents 1 / share decisions."""
    decided_after_s: float = 0.0
    dispatched_after_s: float | None = None
    handed_over_after_s: float | None = None
    believed_tokens: int = 0
    """Cached tokens of the prompt according to the index, regardless of the index's trust."""
    engine_prompt_tokens: int | None = None
    block_tokens: int = 1
    mismatch: str = ""
    """Why hits differ, as in gateway.contracts.hit_sample; empty: they do not differ, or the engine reports none."""
    known: tuple[Known, ...] = ()
    """In the order of the decision's candidates."""
    decode_engine_name: str = ""
    cost: PrefillCost | None = None
    """The cost model of the estimate for the chosen engine, and the engine's speed."""
    speed: float = 1.0
    snapshot_version: int = 0
    snapshot_age_s: float | None = None
    slo_class: str = ""
    regret: Regret | None = None
    """Set by the request log, not by gateways (controlplane.request_log.hindsight)."""
    asked_after_s: float = 0.0
    """Seconds until the gateway asked its router for an engine, those of `tokenizers` among them."""
    load: StoredLoad | None = None
    """None: no load was requested."""
    advisory: StoredAdvisory | None = None
    """None: no advisory was open when the request arrived."""
    hop: Hop | None = None
    """None: the region of first contact served the request."""
    may_defer: bool = False
    """Admission may have deferred the request before its engine was chosen."""
    overtaken_s: float = 0.0
    """Estimated prefills of later requests that were dispatched to the same engine earlier."""
    client_request_id: str = ""
    """The client's X-Request-Id; empty: not sent."""
    asked_model: str = ""
    """The requested alias or LoRA adapter; empty: the served model."""
    door: str = ""
    """How the request came: proxy, api, nginx, haproxy, envoy, or client; empty: observed, or an older record."""
    parent_session: str = ""
    """Keyed digest of the session whose agent started this one; empty: none."""
    service: ServiceStory | None = None
    """None: the request named no service."""
    key_id: str = ""
    """The API key of the request; empty: an older record."""
    tokenizers: tuple[TokenizerWait, ...] = ()
    failures: tuple[FailedAttempt, ...] = ()

    @property
    def decided_at(self) -> float:
        """Return the time of the decision in unix seconds."""
        decision = self.decision
        return self.arrived_at + (decision.queued_s if decision.engine_id else self.finished_after_s or 0.0)


@lru_cache(maxsize=16_384)
def session_digest(key: bytes, session_id: str) -> str:
    """Return the name of a session in records. It reveals nothing without the key (DIGESTS)."""
    if not session_id:
        return ""
    return blake2b(session_id.encode(), digest_size=6, key=key).hexdigest()
