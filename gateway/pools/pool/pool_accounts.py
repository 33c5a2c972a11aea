"""Accounts for a request in its pool: router, engines' progress, costs, traffic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from gateway.pools.pool.kv_load import load_result
from gateway.pools.pool.request_listener import RequestListener
from gateway.pools.traffic.traffic_window import COMPLETED, FAILED
from gateway.server.process.drain import CUT_OFF
from routing.cost.cost_observer import FIRST, LATER
from routing.values.observation import Completed, Failed, FirstToken, HandedOver, LoadResult

if TYPE_CHECKING:
    from gateway.pools.pool.recent_decisions import DecisionRecord
    from routing.values.inference_request import InferenceRequest


class PoolAccounts(RequestListener):
    """Accounts for each request in its pool. Nothing is learned from reports made only by a tenant (`reporter`)."""

    @override
    def dispatched(self, record: DecisionRecord, request: InferenceRequest, took_s: float, again: bool) -> None:
        pool, decision = record.pool, record.decision
        dispatched_s = request.arrived_s + decision.queued_s
        dispatched_s = dispatched_s if dispatched_s > decision.decided_s else decision.decided_s
        keeper = pool.sticky_placement
        prefix = keeper.prefix_of(request) if keeper is not None else None
        pool.progress.dispatched(decision, dispatched_s, prefix, record.tracked)
        if record.tracked:
            loading = decision.loading
            adapter = "" if not request.adapter else FIRST if loading is not None and loading.adapter else LATER
            pool.costs.dispatched(
                decision.decision_id, decision.engine_id, decision.prompt_tokens, decision.hit_tokens, dispatched_s,
                loading.tier_tokens if loading is not None else None, adapter,
            )  # fmt: skip
        pool.prefixes.note(request.keys, decision.engine_id, dispatched_s)

    @override
    def first_token(self, record: DecisionRecord, now: float) -> None:
        pool, decision = record.pool, record.decision
        if record.reporter:
            pool.progress.reported(decision, record.reporter, failed=False)
        else:
            pool.costs.first_token(decision.decision_id, now)
            pool.progress.first_token(decision, now)
        pool.observe(FirstToken(decision.decision_id))

    @override
    def handed_over(self, record: DecisionRecord, now: float, prefilled: bool) -> None:
        pool, decision = record.pool, record.decision
        if not prefilled:
            pool.costs.dropped(decision.decision_id)
        elif decision.pair is not None and not record.reporter:
            pool.costs.handed_over(decision.decision_id, decision.pair.engine_id, now, record.cached_tokens)
        if not record.reporter:
            pool.progress.moved(decision, now, prefilled=prefilled)
        # The reservation, which has the prompt's keys, ends here.
        load = load_result(record, None, now) if prefilled and not record.reporter else None
        pool.observe(HandedOver(decision.decision_id, load))

    @override
    def left(self, record: DecisionRecord, failed: bool) -> None:
        record.pool.costs.dropped(record.decision.decision_id)
        record.pool.progress.dropped(record.decision, failed=failed)
        if failed:
            record.pool.progress.failed(record.decision, begun=record.first_token_s is not None)
        record.pool.observe(Failed(record.decision.decision_id))

    @override
    def ended(self, record: DecisionRecord, now: float) -> None:
        if record.outcome == COMPLETED:
            self._completed(record, now)
        else:
            self._dropped(record)
        record.pool.traffic.add(record)
        record.pool.outcomes.add(record)

    @override
    def forward_ended(self, record: DecisionRecord, now: float) -> None:
        if record.outcome:
            end = Completed if record.outcome == COMPLETED else Failed
            record.pool.observe(end(record.decision.decision_id))

    def _completed(self, record: DecisionRecord, now: float) -> None:
        pool, decision, cached, output = record.pool, record.decision, record.cached_tokens, record.output_tokens
        load: LoadResult | None = None
        if record.reporter:
            pool.progress.reported(decision, record.reporter, failed=False)
        else:
            # The time of a load is no prefill's.
            computed = not record.load_ordered
            load_s = pool.costs.completed(
                decision.decision_id, now, cached_tokens=cached, output_tokens=output, computed=computed
            )
            load = load_result(record, load_s, now) if record.handed_over_s is None else None
            pool.progress.completed(decision, output, now)
        pool.observe(Completed(decision.decision_id, cached, load))

    def _dropped(self, record: DecisionRecord) -> None:
        pool, decision, failed = record.pool, record.decision, record.outcome == FAILED
        pool.costs.dropped(decision.decision_id)
        if not record.reporter:
            # The end of this process is no fault of an engine.
            failed = failed and record.error != CUT_OFF
            pool.progress.dropped(decision, failed=failed)
            if failed:
                pool.progress.failed(decision, begun=record.first_token_s is not None)
        elif failed:
            pool.progress.reported(decision, record.reporter, failed=True)
        pool.observe(Failed(decision.decision_id))
