"""Records of decisions as they begin."""

from __future__ import annotations

from time import monotonic, time
from typing import TYPE_CHECKING

from gateway.pool.recent_decisions import DecisionRecord
from gateway.requests.prompt_keys import KeyedPrompt
from routing.values.decision import Decision, Rejected
from routing.values.inference_request import InferenceRequest

if TYPE_CHECKING:
    from gateway.pool.live_pool import LivePool


def new_record(
    decision: Decision,
    pool: LivePool,
    request: InferenceRequest,
    keyed: KeyedPrompt,
    attempts: tuple[str, ...],
    asked_s: float,
) -> DecisionRecord:
    """Return the record of a decision made now, on which nothing has happened yet."""
    return DecisionRecord(
        decision,
        pool,
        request.tenant_id,
        keyed.source,
        request.arrived_s,
        request.ttft_slo_s,
        time(),
        attempts,
        session_id=request.session_id,
        slo_class=request.slo_class,
        priority=request.priority,
        asked_s=asked_s,
        salted=keyed.salted,
        keys=request.keys,
    )


def engines_of(decision: Decision) -> tuple[str, ...]:
    """Return the engines that the decision chose, in the order in which they work."""
    pair = decision.pair
    return (decision.engine_id,) if pair is None else (decision.engine_id, pair.engine_id)


def no_decision(pool: LivePool, request: InferenceRequest, rejected: Rejected) -> Decision:
    """Return what stands for the decision of a request that was rejected."""
    policy = pool.entry.policy
    decision = Decision(
        request.request_id,
        pool.entry.pool_id,
        "",
        0,
        policy.placement.name,
        policy.order.name,
        pool.entry.policy_version,
        rejected.code,
        request.prompt_tokens,
        0,
        0.0,
        0.0,
        # It was rejected at this moment, after its candidates were looked at.
        monotonic(),
        candidates=rejected.candidates,
    )
    arms = pool.router.arms
    return decision if arms.candidate_arms is None else arms.signed(decision, request)
