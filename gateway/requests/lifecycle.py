"""Places one request and follows it to its end: what the decision API and the proxy have in common.

Every request that gets here ends in exactly one of completed, failed, refused, cancelled or
client_error; its end releases the reservation, counts, and completes the decision's record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

from gateway.base.event_log import log_event
from gateway.contracts.key_source import NONE
from gateway.http.openai_error import ApiError
from gateway.http.overload_rejection import lag_rejection
from gateway.pool.recent_decisions import DecisionRecord, RecentDecisions
from gateway.process.drain import CUT_OFF, SENTENCE, SHUTDOWN
from gateway.requests.decision_records import engines_of, new_record, no_decision
from gateway.requests.objectives import objectives
from gateway.requests.prompt_keys import KeyedPrompt
from gateway.requests.wanted import Wanted
from gateway.traffic.traffic_window import CANCELLED, COMPLETED, FAILED, REJECTED, RequestResult
from routing.values.counted import count
from routing.values.decision import Decision, Dispatched, Rejected
from routing.values.inference_request import InferenceRequest
from routing.values.observation import Completed, Failed, FirstToken, HandedOver

if TYPE_CHECKING:
    from gateway.base.metrics import GatewayMetrics
    from gateway.pool.live_pool import LivePool
    from gateway.reports.arm_results import ArmResults
    from gateway.reports.request_outbox import RequestOutbox

CLIENT_ERROR = "client_error"
"""The engine answered 4xx: the request is over, and neither the engine's nor the fleet's failure."""

_REJECTIONS = {
    "no_engine": (503, "No engine of this model is available; try again."),
    "queue_full": (429, "The queue for this model is full; try again later."),
    "wait_expired": (429, "The request reached the maximum wait without an engine; try again later."),
    "hopeless": (429, "No engine can meet the request's TTFT objective; try again later."),
    "prefill_overload": (429, "The request would miss its TTFT objective; try again later."),
    "decode_overload": (429, "The engines' time per output token would be too high; try again later."),
    SHUTDOWN: (503, SENTENCE),
    "gateway_late": (429, "This gateway cannot keep up; try again later."),
    "deadline_passed": (429, "The deadline of the request's SLO class passed while it waited; try again later."),
}

_UNREAD = KeyedPrompt((), 0, NONE)
"""The prompt of a request that was rejected before it was read; recordings, which want its shape, leave it out."""


class RequestLifecycle:
    """The way in and out of a pool for single requests."""

    def __init__(
        self,
        metrics: GatewayMetrics,
        recent: RecentDecisions,
        ended: Callable[[str], None] | None = None,
        outbox: RequestOutbox | None = None,
        arms: ArmResults | None = None,
    ) -> None:
        self.metrics = metrics
        self.recent = recent
        self._ended = ended
        """Called with the decision's id at each request's end."""
        self._outbox = outbox
        self._arms = arms

    async def place(
        self,
        pool: LivePool,
        wanted: Wanted,
        keyed: KeyedPrompt,
        *,
        hold: bool,
        excluded: frozenset[str] = frozenset(),
        earlier: DecisionRecord | None = None,
    ) -> DecisionRecord:
        """Return the record of a dispatched request; raises ApiError with 400, 429 or 503.

        `earlier` is the record of the same request's attempt on another engine, which is continued.
        """
        request = _request(pool, wanted, keyed)
        asked_s = monotonic()
        try:
            outcome = await pool.place(request, hold=hold, excluded=excluded, salted=keyed.salted)
        except asyncio.CancelledError:
            if earlier is None:
                self.metrics.requests.inc(pool.entry.pool_id, CANCELLED)
            raise
        return self._taken(pool, request, keyed, outcome, asked_s, earlier, wanted)

    def reject_if_late(self, pool: LivePool, wanted: Wanted) -> None:
        """Raise ApiError 429 where the gateway cannot keep up, before anybody is asked to read the prompt."""
        rejected = lag_rejection(pool.lag, pool.router, wanted.request_id)
        if rejected is not None:
            raise self._rejected(pool, _request(pool, wanted, _UNREAD), _UNREAD, rejected, monotonic(), None)

    def place_at_once(self, pool: LivePool, wanted: Wanted, keyed: KeyedPrompt) -> DecisionRecord:
        """Return the record of a request that does not wait for its engine; raises ApiError as `place` does."""
        request = _request(pool, wanted, keyed)
        asked_s = monotonic()
        outcome = pool.place_at_once(request, keyed.salted)
        return self._taken(pool, request, keyed, outcome, asked_s, None, wanted)

    def observed(self, pool: LivePool, wanted: Wanted, keyed: KeyedPrompt, engine_id: str) -> DecisionRecord | None:
        """Return the record of a request that others have sent to the engine; None where it takes no work.

        Raises ApiError 400 for a prompt over the pool's limit or an unknown SLO class.
        """
        request = _request(pool, wanted, keyed)
        dispatched = pool.take_observed(request, engine_id)
        return None if dispatched is None else self._taken(pool, request, keyed, dispatched, monotonic(), None, wanted)

    def _taken(
        self,
        pool: LivePool,
        request: InferenceRequest,
        keyed: KeyedPrompt,
        outcome: Dispatched | Rejected,
        asked_s: float,
        earlier: DecisionRecord | None,
        wanted: Wanted,
    ) -> DecisionRecord:
        """Count and keep the decision; raises ApiError for a rejection."""
        if isinstance(outcome, Rejected):
            raise self._rejected(pool, request, keyed, outcome, asked_s, earlier)
        decision = outcome.decision
        self._count(decision, monotonic() - asked_s)
        dispatched_s = request.arrived_s + decision.queued_s
        dispatched_s = dispatched_s if dispatched_s > decision.decided_s else decision.decided_s
        tracked = wanted.tracked and not wanted.reporter
        keeper = pool.prefix_keeper
        pool.progress.dispatched(
            decision, dispatched_s, keeper.prefix_of(request) if keeper is not None else None, tracked
        )
        if tracked:
            pool.costs.dispatched(
                decision.decision_id, decision.engine_id, decision.prompt_tokens, decision.hit_tokens, dispatched_s
            )
        pool.affinity.prompts.note(request.keys, decision.engine_id, dispatched_s)
        if earlier is not None:
            earlier.decision = decision
            earlier.attempts += engines_of(decision)
            earlier.handed_over_s = earlier.cached_tokens = None
            self.recent.add(earlier)
            return earlier
        tried = (decision.engine_id,) if decision.pair is None else engines_of(decision)
        record = new_record(decision, pool, request, keyed, tried, asked_s)
        if wanted.proxied:
            record.proxied = True
        elif wanted.reporter:
            record.reporter = wanted.reporter
        self.recent.add(record)
        if self._outbox is not None:
            self._outbox.begun(record)
        self.metrics.key_sources.count((decision.pool_id, keyed.source))
        return record

    def _count(self, decision: Decision, took_s: float) -> None:
        pool_id = decision.pool_id
        metrics = self.metrics
        metrics.decisions.count((pool_id, decision.placement, decision.reason))
        of_pool = (pool_id,)
        metrics.queue_wait.note(of_pool, decision.queued_s)
        if decision.queued_s == 0.0:
            # Dispatched at once: nothing was awaited, so the time is that of deciding alone.
            metrics.decision_seconds.note(of_pool, took_s)

    def first_token(self, record: DecisionRecord, now: float) -> None:
        """Note that the engine sent its first token; a second call changes nothing."""
        if record.first_token_s is None and not record.outcome:
            record.first_token_s = now
            if record.reporter:
                record.pool.progress.told(record.decision, record.reporter, failed=False)
            else:
                record.pool.costs.first_token(record.decision.decision_id, now)
                record.pool.progress.first_token(record.decision, now)
            record.pool.observe(FirstToken(record.decision.decision_id))
            self.metrics.ttft.observe(record.decision.pool_id, value=now - record.arrived_s)
            if self._arms is not None and record.decision.arm and not record.reporter:
                self._arms.first_token(record, now - record.arrived_s)

    def handed_over(self, record: DecisionRecord, now: float, cached_tokens: int | None) -> None:
        """Note that the prefill engine is done and its decode engine goes on; a second call changes nothing.

        `cached_tokens` are those of the prefill; the decode engine's own figure counts what came from there.
        """
        decision = record.decision
        if decision.pair is None or record.handed_over_s is not None or record.outcome:
            return
        record.handed_over_s = now
        record.cached_tokens = cached_tokens
        if not record.reporter:
            record.pool.costs.handed_over(decision.decision_id, decision.pair.engine_id, now, cached_tokens)
            record.pool.progress.moved(decision, now, prefilled=True)
        record.pool.observe(HandedOver(decision.decision_id))

    def completed(
        self,
        record: DecisionRecord,
        now: float,
        *,
        cached_tokens: int | None,
        output_tokens: int | None,
        prompt_tokens: int | None = None,
    ) -> None:
        """Note the whole answer; a second end of the same request changes nothing.

        `prompt_tokens`: as the engine counted them.
        """
        if record.outcome:
            return
        decision = record.decision
        if record.handed_over_s is not None:
            cached_tokens = record.cached_tokens
        record.cached_tokens = cached_tokens
        record.output_tokens = output_tokens
        record.engine_prompt_tokens = prompt_tokens
        if record.reporter:
            record.pool.progress.told(decision, record.reporter, failed=False)
        else:
            costs = record.pool.costs
            costs.completed(decision.decision_id, now, cached_tokens=cached_tokens, output_tokens=output_tokens)
            record.pool.progress.completed(decision, output_tokens, now)
        record.pool.observe(Completed(decision.decision_id, cached_tokens))
        self.metrics.prompt_tokens.inc(decision.pool_id, amount=decision.prompt_tokens)
        self.metrics.predicted_tokens.inc(decision.pool_id, amount=decision.hit_tokens)
        if cached_tokens is not None:
            self.metrics.cached_tokens.inc(decision.pool_id, amount=cached_tokens)
        ttft_s = record.ttft_s
        # Where no first token was seen (an answer in one piece), only the wait at the gateway can be judged.
        on_time = (decision.queued_s if ttft_s is None else ttft_s) <= record.ttft_slo_s
        self._end(record, COMPLETED, now, on_time=on_time)

    def failed(self, record: DecisionRecord, now: float, error: str) -> None:
        """Note that the request ended without a whole answer; `error` is a code."""
        self._end_without_answer(record, FAILED, now, error, engine_failed=True)

    def cancelled(self, record: DecisionRecord, now: float) -> None:
        """Note that the client went away."""
        self._end_without_answer(record, CANCELLED, now, "client_gone")

    def cut_off(self, record: DecisionRecord, now: float) -> None:
        """Note that the end of this process cut the answer off, for which no engine is to blame."""
        self._end_without_answer(record, FAILED, now, CUT_OFF, engine_failed=False)

    def client_error(self, record: DecisionRecord, now: float, status: int) -> None:
        """Note that the engine rejected the request for what it is."""
        self._end_without_answer(record, CLIENT_ERROR, now, f"http_{status}")

    def released(self, record: DecisionRecord, *, failed: bool = True) -> None:
        """Give the engine's reservation back although the request goes on, on another engine."""
        record.pool.costs.dropped(record.decision.decision_id)
        record.pool.progress.dropped(record.decision, failed=failed)
        record.pool.observe(Failed(record.decision.decision_id))

    def let_go(self, record: DecisionRecord) -> None:
        """Give the engine back for a request that may never be sent; what becomes of it can still be told."""
        record.pool.observe(Failed(record.decision.decision_id))

    def assume_over(self, record: DecisionRecord) -> None:
        """Give the engine back for a request of which nobody tells: it is taken to have gone as estimated."""
        if not record.outcome and record.first_token_s is None:
            record.pool.observe(Completed(record.decision.decision_id, None))

    def _end_without_answer(
        self, record: DecisionRecord, outcome: str, now: float, error: str, *, engine_failed: bool = False
    ) -> None:
        if record.outcome:
            return
        record.error = error
        record.pool.costs.dropped(record.decision.decision_id)
        if not record.reporter:
            record.pool.progress.dropped(record.decision, failed=engine_failed)
        elif outcome == FAILED:
            record.pool.progress.told(record.decision, record.reporter, failed=True)
        record.pool.observe(Failed(record.decision.decision_id))
        self._end(record, outcome, now, on_time=False)

    def _end(self, record: DecisionRecord, outcome: str, now: float, *, on_time: bool) -> None:
        decision = record.decision
        record.outcome = outcome
        record.finished_s = now
        if self._ended is not None:
            self._ended(decision.decision_id)
        if self._outbox is not None and not record.recorded:
            self._outbox.ended(record)
        self.metrics.requests.inc(decision.pool_id, outcome)
        # A rejection is our own doing, whoever asked.
        if self._arms is not None and decision.arm and (outcome == REJECTED or not record.reporter):
            self._arms.ended(record, on_time=on_time)
        counted = CANCELLED if outcome == CLIENT_ERROR else outcome
        result = RequestResult(
            now, record.ttft_s, decision.prompt_tokens, record.cached_tokens, on_time, counted, decision.hit_tokens
        )
        record.pool.traffic.add(result, decision.engine_id or None)
        if outcome == FAILED:
            log_event(
                "request_failed",
                decision_id=decision.decision_id,
                pool_id=decision.pool_id,
                engine_id=decision.engine_id,
                error=record.error,
            )

    def _rejected(
        self,
        pool: LivePool,
        request: InferenceRequest,
        keyed: KeyedPrompt,
        rejected: Rejected,
        asked_s: float,
        earlier: DecisionRecord | None,
    ) -> ApiError:
        pool_id = pool.entry.pool_id
        record = earlier
        if record is None:
            record = new_record(no_decision(pool, request, rejected), pool, request, keyed, (), asked_s)
            self.recent.add(record)
            if keyed is _UNREAD:
                record.keys = None
        self.metrics.refusals.inc(pool_id, rejected.code)
        self._end_without_answer(record, REJECTED, monotonic(), rejected.code)
        status, message = _REJECTIONS.get(rejected.code, _REJECTIONS["queue_full"])
        return ApiError(status, message, rejected.code, retry_after_s=rejected.retry_after_s)


def prompt_too_long(prompt_tokens: int, limit: int) -> ApiError:
    """Return the 400 for a prompt over the pool's limit."""
    message = (
        f"The prompt has {count(prompt_tokens, 'token')}; the limit of this model is {limit}. Send a shorter prompt."
    )
    return ApiError(400, message, "context_length_exceeded", param="messages")


def _request(pool: LivePool, wanted: Wanted, keyed: KeyedPrompt) -> InferenceRequest:
    """Return the request in the core's terms; raises ApiError 400 for a prompt over the pool's limit.

    400 too for an SLO class that the pool does not have.
    """
    entry = pool.entry
    alone = keyed.prompt_tokens - keyed.further_tokens
    if alone > entry.max_prompt_tokens:
        raise prompt_too_long(alone, entry.max_prompt_tokens)
    expected = objectives(wanted, entry.policy)
    return InferenceRequest(
        wanted.request_id,
        keyed.keys,
        keyed.prompt_tokens,
        entry.block_tokens,
        wanted.arrived_s,
        expected.ttft_slo_s,
        wanted.max_output_tokens,
        wanted.tenant_id,
        wanted.session_id,
        expected.priority,
        expected.tbt_slo_s,
        expected.give_up_s,
        expected.slo_class,
    )
