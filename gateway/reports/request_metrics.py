"""The gateway's request metrics."""

from __future__ import annotations

from time import time
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
        self._models = metrics.models.of

    @override
    def dispatched(self, record: DecisionRecord, request: InferenceRequest, took_s: float, again: bool) -> None:
        decision, metrics = record.decision, self._metrics
        pool_id, queued_s = decision.pool_id, decision.queued_s
        metrics.decisions.count((pool_id, decision.placement, decision.reason))
        of_model = self._models(pool_id, record.model_name)
        if queued_s == 0.0:
            metrics.queue_wait.note(of_model, queued_s)
            # Dispatched at once, without a wait, so the time is that of deciding alone.
            metrics.decision_seconds.note((pool_id,), took_s)
        else:
            metrics.queue_wait.note_example(of_model, queued_s, decision.decision_id, time())
        if not again:
            metrics.key_sources.count((pool_id, record.key_source))

    @override
    def first_token(self, record: DecisionRecord, now: float) -> None:
        of_model = self._models(record.decision.pool_id, record.model_name)
        self._metrics.ttft.note_example(of_model, now - record.arrived_s, record.decision.decision_id, time())

    @override
    def ended(self, record: DecisionRecord, now: float) -> None:
        decision, metrics = record.decision, self._metrics
        if record.outcome == COMPLETED:
            self._completed(record, now)
        elif record.outcome == REJECTED:
            metrics.rejections.inc(decision.pool_id, record.error)
        metrics.requests.count((decision.pool_id, record.outcome))

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

    def _completed(self, record: DecisionRecord, now: float) -> None:
        decision, metrics, unix_s = record.decision, self._metrics, time()
        of_model = self._models(decision.pool_id, record.model_name)
        metrics.prompt_tokens.add(of_model, decision.prompt_tokens)
        metrics.predicted_tokens.add(of_model, decision.hit_tokens)
        if record.cached_tokens is not None:
            metrics.cached_tokens.add(of_model, record.cached_tokens)
        if record.output_tokens is not None:
            metrics.output_tokens.add(of_model, record.output_tokens)
        metrics.e2e.note_example(of_model, now - record.arrived_s, decision.decision_id, unix_s)
        if (tpot_s := record.tpot_s) is not None:
            metrics.tpot.note_example(of_model, tpot_s, decision.decision_id, unix_s)
