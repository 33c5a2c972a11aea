"""The routing core's decision about one request: engine, reason, and alternatives."""

from __future__ import annotations

import msgspec

from routing.policy.policy_document import RoutingPolicy
from routing.values.engine_pair import EnginePair
from routing.values.hop import Hop
from routing.values.inference_request import InferenceRequest
from routing.values.load_options import Fetch, LoadOptions

CENTRAL = -1
"""Target of a Choice that leaves the request unbound in the pool's queue."""


ALONE = "alone"
"""Value of Decision.decided_by if a gateway could not reach the pool's owner."""
OTHER_KEYS = ", other block keys"
"""Suffix of Decision.decided_by if the owner uses another fleet secret and could not compare the prompt's blocks."""


class Loading(msgspec.Struct, frozen=True, gc=False):
    """The load that an engine makes before the prefill of one request."""

    seconds: float
    """Expected time, included in the candidate's compute_s."""
    tier_tokens: dict[str, int] = {}
    """Prompt tokens from each of the engine's lower tiers (kvstore.index.lower_tiers), included in its hit_tokens."""
    adapter: str = ""
    """The request's LoRA adapter, if the engine must load it."""


class Candidate(msgspec.Struct, frozen=True, gc=False):
    """One scored engine. Hits are in prompt tokens, times in seconds, cost in the placement's unit."""

    engine_id: str
    hit_tokens: int
    wait_s: float
    compute_s: float
    cost: float
    blocks: int = 0
    """Leading blocks of the prompt that the engine holds or will soon hold, regardless of trust."""
    decode_s: float = 0.0
    """Part of the cost: the longer steps of this answer and of the answers that share the engine."""
    late_s: float = 0.0
    """Part of the cost: the time of all these steps beyond the TPOT objective."""
    memory_s: float = 0.0
    """Part of the cost: the wait for KV memory that running answers hold."""
    loading: Loading | None = None
    """Load from lower tiers and of LoRA adapters before the engine computes, or None."""

    @property
    def sharing_s(self) -> float:
        """Part of the cost caused by sharing the engine with other answers."""
        return self.decode_s + self.late_s + self.memory_s


class Choice(msgspec.Struct, frozen=True, gc=False):
    """A placement's result: an index into `view.targets` (or CENTRAL), and the scores behind it."""

    target: int
    reason: str
    """A code of routing.values.reasons, rendered to words only for display."""
    candidates: tuple[Candidate, ...] = ()
    """The best candidates, chosen one first."""
    fetch: Fetch | None = None
    """Blocks that the chosen engine fetches first."""
    loads: LoadOptions | None = None
    """What the prompt can load, for its queue and its dispatch. None if the placement does not count on loads."""


class Decision(msgspec.Struct, frozen=True, gc=False):
    """The engine of one request, and the reason. Dashboard, logs, records, and tests read this object."""

    decision_id: str
    """The request's id."""
    pool_id: str
    engine_id: str
    """Empty while the request is unbound."""
    incarnation: int
    placement: str
    order: str
    policy_version: int
    reason: str
    prompt_tokens: int
    hit_tokens: int
    """Predicted cached prompt tokens on the chosen engine."""
    wait_s: float
    compute_s: float
    decided_s: float
    """Decision time in monotonic seconds of the deciding process."""
    queued_s: float = 0.0
    """Seconds that the queued request waited before its dispatch (0 until dispatched)."""
    candidates: tuple[Candidate, ...] = ()
    fetch: Fetch | None = None
    queue_reason: str = ""
    """Code of routing.values.reasons: why it was dispatched before other requests. Empty if it did not wait."""
    overtook: int = 0
    """Queued requests that had waited longer for the same engine (or also unbound) and were overtaken."""
    pair: EnginePair | None = None
    """The decode engine if `engine_id` only prefills. Set at dispatch."""
    migrated_s: float = 0.0
    """When the queued request was migrated to this engine, in the clock of `decided_s`. 0 if it was not."""
    arm: str = ""
    """The arm that chose: live, canary, or control. Empty if no trial is running."""
    decided_by: str = ""
    """If several gateways share the pool: the owner's name and epoch, or ALONE. Empty: this gateway decides for all."""

    @property
    def knew_blocks(self) -> bool:
        """Whether the prompt's blocks were compared with the engines' blocks."""
        return not self.decided_by.endswith(OTHER_KEYS)

    @classmethod
    def of(
        cls,
        request: InferenceRequest,
        choice: Choice,
        now: float,
        pool_id: str,
        incarnation: int,
        policy: RoutingPolicy,
        policy_version: int,
    ) -> Decision:
        """Return the decision of a choice. It is unbound if the choice names no candidate or is CENTRAL."""
        engine_id, hit_tokens, wait_s, compute_s = "", 0, 0.0, 0.0
        if choice.target != CENTRAL:
            best = choice.candidates[0]
            engine_id, hit_tokens, wait_s, compute_s = best.engine_id, best.hit_tokens, best.wait_s, best.compute_s
        # By position, in the order of the fields: names cost a quarter of the call here.
        return cls(
            request.request_id,
            pool_id,
            engine_id,
            incarnation,
            policy.placement.name,
            policy.order.name,
            policy_version,
            choice.reason,
            request.prompt_tokens,
            hit_tokens,
            wait_s,
            compute_s,
            now,
            0.0,
            choice.candidates,
            choice.fetch,
        )

    @property
    def loading(self) -> Loading | None:
        """The load that the chosen engine makes before it computes, or None."""
        return self.candidates[0].loading if self.candidates else None

    def with_loading(self, loading: Loading | None) -> Decision:
        """Return the decision with the load that the engine makes, as of its dispatch."""
        chosen = msgspec.structs.replace(self.candidates[0], loading=loading)
        return msgspec.structs.replace(self, candidates=(chosen, *self.candidates[1:]))


class Dispatched(msgspec.Struct, frozen=True, gc=False):
    """Send the request to `decision.engine_id` at once. Its reservation exists."""

    decision: Decision
    holders: tuple[str, ...] = ()
    """Nodes that can send the decided load, in the order to try them."""


class Queued(msgspec.Struct, frozen=True, gc=False):
    """The request waits at the gateway. A later call returns its Dispatched or Rejected."""

    decision: Decision
    loads: LoadOptions | None = None
    """What the prompt can load, None if its placement does not count on loads."""


class Rejected(msgspec.Struct, frozen=True, gc=False):
    """The request gets no engine. `code` is one of routing.values.reasons.REJECTIONS."""

    request_id: str
    code: str
    retry_after_s: float
    """Seconds until a retry makes sense. Queue full or wait expired: the wait for the least loaded engine. Admission:
    how late the request would be, or how long decodes take to fall below the limit. Late gateway: twice its lag, or the
    wait beyond the objective. No engine: a constant.
    """
    candidates: tuple[Candidate, ...] = ()
    """The engines considered, if the request was rejected because of their load."""


class Elsewhere(msgspec.Struct, frozen=True, gc=False):
    """Another region gets the request. The driver carries it there, and reports Failed or Completed as for an engine.

    If the region does not take the request, the driver reports `ForwardFailed`, and the chain decides again.
    """

    request_id: str
    hop: Hop
    gateway: str = ""
    """Name of the gateway that receives it; empty if this gateway serves the region's engines."""
    heartbeat_age_s: float = 0.0
    """Age of that gateway's heartbeat at the decision."""


Outcome = Dispatched | Queued | Rejected
"""A decision within one pool."""
ChainOutcome = Outcome | Elsewhere
"""A decision of the whole chain (routing.chain.decider)."""


def id_of(outcome: ChainOutcome) -> str:
    """Return the id of the outcome's request."""
    return outcome.decision.decision_id if isinstance(outcome, Dispatched | Queued) else outcome.request_id
