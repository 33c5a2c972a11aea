"""The routing core's decision about one request: its engine, the reason, and the alternatives."""

from __future__ import annotations

import msgspec

from routing.policy.policy_document import RoutingPolicy
from routing.values.engine_pair import EnginePair
from routing.values.inference_request import InferenceRequest

CENTRAL = -1
"""Target of a Choice that leaves the request unbound in the pool's queue."""


ALONE = "alone"
"""Decision.decided_by of a gateway that could not ask the pool's owner."""
OTHER_KEYS = ", other block keys"
"""End of Decision.decided_by where the owner uses another fleet secret: it could not compare the prompt's blocks."""


class Loading(msgspec.Struct, frozen=True, gc=False):
    """An engine's own load before the prefill of one request."""

    seconds: float
    """Expected time; part of the candidate's compute_s."""
    tier_tokens: dict[str, int] = {}
    """Prompt tokens that come from its own lower tiers (kvstore.index.lower_tiers); part of its hit_tokens."""
    adapter: str = ""
    """The LoRA adapter of the request, where the engine has not loaded it."""


class Candidate(msgspec.Struct, frozen=True, gc=False):
    """One scored engine. Hits in prompt tokens, times in seconds, cost in the placement's own unit."""

    engine_id: str
    hit_tokens: int
    wait_s: float
    compute_s: float
    cost: float
    blocks: int = 0
    """Leading blocks of the prompt that the engine holds or is about to hold, whatever the trust in that."""
    decode_s: float = 0.0
    """Part of the cost: the longer steps of this answer, and of those that share the engine with it."""
    late_s: float = 0.0
    """Part of the cost: the time of all these steps beyond the TPOT objective."""
    memory_s: float = 0.0
    """Part of the cost: the wait for KV memory that running answers hold."""
    loading: Loading | None = None
    """Its own load from lower tiers, and of LoRA adapters, before it computes; None: none."""

    @property
    def sharing_s(self) -> float:
        """Part of the cost that comes from answers that share the engine."""
        return self.decode_s + self.late_s + self.memory_s


class Fetch(msgspec.Struct, frozen=True, gc=False):
    """Blocks to be copied from another engine's cache, or from a node, before the prefill starts (Mooncake Alg. 1).

    Made only where the view allows transfers. Only blocks that the source really holds when the prefill starts can be
    copied.
    """

    source_engine_id: str
    """Empty where a node is the source."""
    blocks: int
    """Leading blocks of the prompt to take from the source; those that the chosen engine holds do not travel."""
    seconds: float
    """Estimated time of the transfer; part of the decision's compute_s."""
    node: str = ""
    """Name of the node manager that the blocks are loaded from; empty where an engine is the source."""
    ssd_blocks: int = 0
    """Those of the blocks that travel which the node has on SSD alone."""

    @property
    def source(self) -> str:
        """The source of the blocks, in words: an engine's id, or "node …"."""
        return f"node {self.node}" if self.node else self.source_engine_id


class Choice(msgspec.Struct, frozen=True, gc=False):
    """A placement's answer: an index into `view.targets` (or CENTRAL), with the scores that led there."""

    target: int
    reason: str
    """A code of routing.values.reasons; rendered to words only when it is displayed."""
    candidates: tuple[Candidate, ...] = ()
    """The best few, the chosen one first."""
    fetch: Fetch | None = None
    """Blocks that the chosen engine gets from another one first."""


class Decision(msgspec.Struct, frozen=True, gc=False):
    """The engine of one request, and why. Dashboard, logs, records, and tests read this same object."""

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
    """Monotonic seconds of the deciding process."""
    queued_s: float = 0.0
    """Seconds the queued request waited before its dispatch (0 until dispatched)."""
    candidates: tuple[Candidate, ...] = ()
    fetch: Fetch | None = None
    queue_reason: str = ""
    """Why it was dispatched before other waiting requests, a code of routing.values.reasons; empty: it did not wait."""
    overtook: int = 0
    """Queued requests that had waited longer for the same engine, or unbound as this one, and stayed behind."""
    pair: EnginePair | None = None
    """The decode engine, where `engine_id` only prefills; set at dispatch."""
    migrated_s: float = 0.0
    """When the queued request was moved to this engine, as `decided_s`; 0: it was not."""
    arm: str = ""
    """live, canary or control: the arm that chose, while a trial runs; empty: none runs."""
    decided_by: str = ""
    """Where several gateways share the pool: the owner's name and epoch, or ALONE; empty: this gateway, for all."""

    @property
    def knew_blocks(self) -> bool:
        """Whether the prompt's blocks were compared with those of engines."""
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
        """Return the decision of a choice; unbound where the choice names no candidate or is CENTRAL."""
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

    def fetch_at_dispatch(self, held: int, at_source: int) -> Fetch | None:
        """Return the part of the planned fetch that is still useful, None where there is none.

        `held` leading blocks are on the chosen engine when the prefill starts, `at_source` on the source.
        """
        planned = self.fetch
        if planned is None or planned.node or at_source <= held:
            return None
        # The planned time is for the blocks that the engine lacked at the decision.
        block_s = planned.seconds / (planned.blocks - self.candidates[0].blocks)
        return Fetch(planned.source_engine_id, at_source, block_s * (at_source - held))

    @property
    def loading(self) -> Loading | None:
        """The chosen engine's own load before it computes; None: none."""
        return self.candidates[0].loading if self.candidates else None

    def with_loading(self, loading: Loading | None) -> Decision:
        """Return the decision with this load by the engine itself, as of its dispatch."""
        chosen = msgspec.structs.replace(self.candidates[0], loading=loading)
        return msgspec.structs.replace(self, candidates=(chosen, *self.candidates[1:]))

    def dispatched(
        self,
        queued_s: float,
        hit_tokens: int,
        compute_s: float,
        fetch: Fetch | None,
        queue_reason: str = "",
        overtook: int = 0,
    ) -> Dispatched:
        """Return the dispatch of this decision after its wait, with fresh estimates."""
        fresh = msgspec.structs.replace(
            self,
            hit_tokens=hit_tokens,
            compute_s=compute_s,
            queued_s=queued_s,
            fetch=fetch,
            queue_reason=queue_reason,
            overtook=overtook,
        )
        return Dispatched(fresh)


class Dispatched(msgspec.Struct, frozen=True, gc=False):
    """Send the request to `decision.engine_id` at once; it has a reservation there."""

    decision: Decision


class Queued(msgspec.Struct, frozen=True, gc=False):
    """The request waits at the gateway; its Dispatched or Rejected comes from a later call."""

    decision: Decision


class Rejected(msgspec.Struct, frozen=True, gc=False):
    """The request gets no engine: `code` is one of routing.values.reasons.REJECTIONS."""

    request_id: str
    code: str
    retry_after_s: float
    """When to ask again. Queue full or wait over: the wait for the least loaded engine. Admission: how late the request
    would be, or how long decodes take to fall below the limit. Late gateway: twice its lag, or the wait beyond the
    objective. No engine: a constant."""
    candidates: tuple[Candidate, ...] = ()
    """The engines that were considered, where the request was rejected for their load."""


Outcome = Dispatched | Queued | Rejected
