"""The gateway's request metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from gateway.pools.pool.request_listener import RequestListener
from gateway.pools.traffic.traffic_window import COMPLETED, REJECTED

if TYPE_CHECKING:
    from gateway.base.metrics import GatewayMetrics
    from gateway.pools.pool.recent_decisions import DecisionRecord
    from routing.values.inference_request import InferenceRequest


class RequestMetrics(RequestListener):
    """Counts each request once per event. It has no state of its own."""

    def __init__(self, metrics: GatewayMetrics) -> None:
        self._metrics = metrics

    @override
    def dispatched(self, record: DecisionRecord, request: InferenceRequest, took_s: float, again: bool) -> None:
        decision, metrics = record.decision, self._metrics
        pool_id = decision.pool_id
        metrics.decisions.count((pool_id, decision.placement, decision.reason))
        of_pool = (pool_id,)
        metrics.queue_wait.note(of_pool, decision.queued_s)
        if decision.queued_s == 0.0:
            # Dispatched at once, without a wait, so the time is that of deciding alone.
            metrics.decision_seconds.note(of_pool, took_s)
        if not again:
            metrics.key_sources.count((pool_id, record.key_source))

    @override
    def first_token(self, record: DecisionRecord, now: float) -> None:
        self._metrics.ttft.observe(record.decision.pool_id, value=now - record.arrived_s)

    @override
    def ended(self, record: DecisionRecord, now: float) -> None:
        decision, metrics = record.decision, self._metrics
        if record.outcome == COMPLETED:
            metrics.prompt_tokens.inc(decision.pool_id, amount=decision.prompt_tokens)
            metrics.predicted_tokens.inc(decision.pool_id, amount=decision.hit_tokens)
            if record.cached_tokens is not None:
                metrics.cached_tokens.inc(decision.pool_id, amount=record.cached_tokens)
        elif record.outcome == REJECTED:
            metrics.rejections.inc(decision.pool_id, record.error)
        metrics.requests.inc(decision.pool_id, record.outcome)

    @override
    def provider_ended(self, record: DecisionRecord, now: float) -> None:
        story, metrics = record.service, self._metrics
        if story is None:
            return
        metrics.provider_requests.inc(story.service, record.outcome)
        for kind, tokens in (("prompt", record.engine_prompt_tokens), ("output", record.output_tokens)):
            if tokens:
                metrics.provider_tokens.inc(story.service, kind, amount=tokens)
        if story.cost:
            metrics.provider_cost.inc(story.service, amount=story.cost)
