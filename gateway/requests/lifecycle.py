"""Dispatches one request and follows it to its end, for the decision API and the proxy.

Every request ends in exactly one of completed, failed, rejected, cancelled or client_error. The record holds its state,
and the listeners receive each change once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from time import monotonic, time
from typing import TYPE_CHECKING

from gateway.base.event_log import log_event
from gateway.pools.pool.overload import lag_rejection
from gateway.pools.pool.recent_decisions import DecisionRecord, RecentDecisions
from gateway.pools.pool.request_listener import RequestListener, RequestListeners
from gateway.pools.pool.router_driver import Placed
from gateway.pools.traffic.traffic_window import CANCELLED, COMPLETED, FAILED, REJECTED
from gateway.requests.gateway_request import GatewayRequest
from gateway.requests.rejections import OVERFLOWS, PoolRejectedError, rejection
from gateway.server.http.openai_error import ApiError
from gateway.server.process.drain import CUT_OFF
from kvstore.connector.engine_params import KvOutcome
from routing.values.decision import Decision, Dispatched, Elsewhere, Rejected
from routing.values.observation import Completed, Failed, FirstToken
from routing.values.reasons import FORWARDED, NO_ENGINE

if TYPE_CHECKING:
    from gateway.base.metrics import GatewayMetrics
    from gateway.pools.pool.live_pool import LivePool

CLIENT_ERROR = "client_error"
"""The engine answered 4xx. The request has ended, and neither the engine nor the fleet has failed."""


class RequestLifecycle:
    """The entry and exit of a pool for single requests."""

    def __init__(self, metrics: GatewayMetrics, recent: RecentDecisions, listeners: Iterable[RequestListener]) -> None:
        self.metrics = metrics
        self.recent = recent
        self._listeners = RequestListeners(listeners)

    async def place(
        self,
        pool: LivePool,
        request: GatewayRequest,
        *,
        hold: bool,
        excluded: frozenset[str] = frozenset(),
        earlier: DecisionRecord | None = None,
    ) -> DecisionRecord:
        """Return the record of a request that has an engine, or goes to the region `record.elsewhere`.

        Raise ApiError with 409, 429 or 503. `earlier` is the record of the request's previous attempt on another
        engine, which is continued.
        """
        asked_s = monotonic()
        try:
            if request.asked_model:
                outcome = await _placed_by_name(pool, request, excluded, hold=hold)
            else:
                outcome = await pool.decide(request, hold=hold, excluded=excluded)
        except asyncio.CancelledError:
            # A request that had an engine has a record, whose end is counted.
            if earlier is None:
                self.metrics.requests.inc(pool.entry.pool_id, CANCELLED)
            raise
        if request.lease is not None and isinstance(outcome, Dispatched) and not request.lease.holds():
            # No engine has received it yet, and another region may be at work on it by now.
            pool.observe(Failed(request.request_id))
            outcome = Rejected(request.request_id, "taken_back", 1.0)
        return self._taken(pool, request, outcome, asked_s, earlier)

    async def forward_failed(self, record: DecisionRecord, request: GatewayRequest) -> None:
        """Record that the other region did not take the request, and continue the record by the next decision.

        Raise ApiError as `place` does.
        """
        asked_s = monotonic()
        for notify in self._listeners.forward_ended:
            notify(record, asked_s)
        outcome = await record.pool.driver.forward_failed(request.request_id)
        self._taken(record.pool, request, outcome, asked_s, record)

    def forward_begun(self, record: DecisionRecord, now: float) -> None:
        """Record the first bytes of another region's answer."""
        if record.first_token_s is None:
            record.first_token_s = now

    def forward_ended(self, record: DecisionRecord, outcome: str, now: float) -> None:
        """Record the end of a request in another region, whose gateway notifies its own listeners of the rest."""
        if not record.outcome:
            record.outcome, record.finished_s = outcome, now
            for notify in self._listeners.forward_ended:
                notify(record, now)

    def reject_if_late(self, pool: LivePool, request: GatewayRequest) -> None:
        """Raise ApiError 429 if the gateway cannot keep up, before the prompt is tokenized."""
        rejected = lag_rejection(pool.lag, pool.router, request.request_id)
        if rejected is not None:
            raise self._rejected(pool, request, rejected, monotonic(), unread=True)

    def observed(self, pool: LivePool, request: GatewayRequest, engine_id: str) -> DecisionRecord | None:
        """Return the record of a request that others have sent to the engine, None if the engine accepts no work."""
        dispatched = pool.take_observed(request, engine_id)
        return None if dispatched is None else self._taken(pool, request, dispatched, monotonic())

    def _taken(
        self,
        pool: LivePool,
        request: GatewayRequest,
        outcome: Placed,
        asked_s: float,
        earlier: DecisionRecord | None = None,
    ) -> DecisionRecord:
        """Begin or continue the record of a request; raise ApiError for a rejection."""
        if isinstance(outcome, Rejected):
            raise self._rejected(pool, request, outcome, asked_s, earlier)
        took_s = monotonic() - asked_s
        engines: tuple[str, ...] = ()
        if isinstance(outcome, Elsewhere):
            decision = _forwarded(pool, request)
        else:
            decision = outcome.decision
            engines = _engines_of(decision)
        record = earlier
        again = record is not None and bool(record.attempts)
        if record is None:
            record = _new_record(decision, pool, request, engines, asked_s)
        else:
            record.decision, record.pool, record.service = decision, pool, request.service
            record.attempts += engines
            # They belong to the attempt before.
            record.handed_over_s = record.cached_tokens = None
            record.elsewhere, record.hop = None, request.hop
        self.recent.add(record, again=again)
        if not isinstance(outcome, Elsewhere):
            record.load_holders = outcome.holders
            for notify in self._listeners.dispatched:
                notify(record, request, took_s, again)
        else:
            record.elsewhere, record.hop = outcome, outcome.hop
        return record

    def sent_out(
        self, pool: LivePool, request: GatewayRequest, code: str, earlier: DecisionRecord | None
    ) -> DecisionRecord:
        """Begin or continue the record of a request that goes to a provider, because pools rejected it with `code`."""
        decision = _no_decision(pool, request, Rejected(request.request_id, code, 0.0))
        record = earlier or _new_record(decision, pool, request, (), monotonic())
        record.decision, record.service = decision, request.service
        if earlier is None:
            self.recent.add(record)
        for notify in self._listeners.sent_out:
            notify(record, monotonic())
        return record

    def provider_ended(self, record: DecisionRecord, outcome: str, now: float, error: str = "") -> None:
        """Record the end of a provider's answer. `error` is a code."""
        if not record.outcome:
            record.outcome, record.error, record.finished_s = outcome, error, now
            record.late = record.misses_objective()
            for notify in self._listeners.provider_ended:
                notify(record, now)

    def rejected(
        self, pool: LivePool, request: GatewayRequest, rejected: Rejected, earlier: DecisionRecord | None
    ) -> ApiError:
        """Record the rejection of a request that nothing else of its service can serve; return its error."""
        return self._rejected(pool, request, rejected, monotonic(), earlier)

    def first_token(self, record: DecisionRecord, now: float) -> None:
        """Record the engine's first token. A second call changes nothing."""
        if record.first_token_s is None and not record.outcome:
            record.first_token_s = now
            for notify in self._listeners.first_token:
                notify(record, now)

    def assume_first_token(self, record: DecisionRecord) -> None:
        """Let the router assume that the prefill, whose end is not visible, has ended. The record keeps no TTFT."""
        record.pool.observe(FirstToken(record.decision.decision_id))

    def handed_over(self, record: DecisionRecord, now: float, cached_tokens: int | None) -> None:
        """Record that the prefill has ended and the decode engine continues. A second call changes nothing.

        `cached_tokens` are those of the prefill. The decode engine's own figure counts the transferred blocks.
        """
        if record.decision.pair is None or record.handed_over_s is not None or record.outcome:
            return
        record.handed_over_s = now
        record.cached_tokens = cached_tokens
        for notify in self._listeners.handed_over:
            notify(record, now, True)

    def prefill_left_out(self, record: DecisionRecord) -> None:
        """Record that the decode engine computes the prompt itself. The prefill engine is released."""
        for notify in self._listeners.handed_over:
            notify(record, monotonic(), False)

    def loaded(self, record: DecisionRecord, outcome: KvOutcome | None) -> None:
        """Record the engine's report on the KV that it was instructed to load; None: there is no report.

        A decode engine had nothing to load, so its report does not concern the prompt.
        """
        if outcome is not None and not record.outcome and record.handed_over_s is None:
            record.load = outcome

    def completed(
        self,
        record: DecisionRecord,
        now: float,
        *,
        cached_tokens: int | None,
        output_tokens: int | None,
        prompt_tokens: int | None = None,
    ) -> None:
        """Record the complete answer. A second end of the same request changes nothing.

        `prompt_tokens` is the engine's count.
        """
        if record.outcome:
            return
        if record.handed_over_s is None:
            record.cached_tokens = cached_tokens
        record.output_tokens = output_tokens
        record.engine_prompt_tokens = prompt_tokens
        self._end(record, COMPLETED, now)

    def failed(self, record: DecisionRecord, now: float, error: str) -> None:
        """Record that the request ended without a complete answer. `error` is a code."""
        self._end(record, FAILED, now, error)

    def cancelled(self, record: DecisionRecord, now: float) -> None:
        """Record that the client disconnected."""
        self._end(record, CANCELLED, now, "client_gone")

    def cut_off(self, record: DecisionRecord, now: float) -> None:
        """Record that the process's shutdown cut the answer off, which is no engine's fault."""
        self._end(record, FAILED, now, CUT_OFF)

    def client_error(self, record: DecisionRecord, now: float, status: int) -> None:
        """Record that the engine rejected the request because of its content."""
        self._end(record, CLIENT_ERROR, now, f"http_{status}")

    def rejected_by_engine(self, record: DecisionRecord, engine_id: str, status: int) -> None:
        """Record a rejection that this gateway saw."""
        now = monotonic()
        record.pool.progress.engine(engine_id).rejected(now)
        self.client_error(record, now, status)

    def left(self, record: DecisionRecord, *, failed: bool, engine_id: str, cause: str) -> None:
        """Release the engine's reservation, because the request continues on another engine.

        `cause` is why it left `engine_id`; `failed`: that engine was at fault.
        """
        record.failures += ((engine_id, cause, record.decision.decided_s, monotonic()),)
        for notify in self._listeners.left:
            notify(record, failed)

    def let_go(self, record: DecisionRecord) -> None:
        """Release the engine of a request that may never be sent. Its end can still be reported."""
        record.pool.observe(Failed(record.decision.decision_id))

    def assume_over(self, record: DecisionRecord) -> None:
        """Release the engine of a request without reports, assuming that it went as estimated."""
        if not record.outcome and record.first_token_s is None:
            record.pool.observe(Completed(record.decision.decision_id, None))

    def _end(self, record: DecisionRecord, outcome: str, now: float, error: str = "") -> None:
        if record.outcome:
            return
        record.outcome = outcome
        record.error = error
        record.finished_s = now
        record.late = record.misses_objective()
        for notify in self._listeners.ended:
            notify(record, now)
        if outcome == FAILED:
            decision = record.decision
            log_event(
                "request_failed",
                decision_id=decision.decision_id,
                client_request_id=record.client_request_id,
                pool_id=decision.pool_id,
                engine_id=decision.engine_id,
                error=error,
            )

    def _rejected(
        self,
        pool: LivePool,
        request: GatewayRequest,
        rejected: Rejected,
        asked_s: float,
        earlier: DecisionRecord | None = None,
        *,
        unread: bool = False,
    ) -> ApiError:
        record = earlier
        # A time that would depend on the engines' work is replaced by one that does not.
        pause_s = pool.entry.policy.ttft_slo_s if pool.hides_load_from(request.witness) else None
        if request.spare and rejected.code in OVERFLOWS:
            return PoolRejectedError(rejected, pause_s, record)
        if record is None:
            record = _new_record(_no_decision(pool, request, rejected), pool, request, (), asked_s)
            # Call graphs are learned from recordings of served calls.
            record.agent = record.workflow_id = ""
            self.recent.add(record)
            if unread:
                record.keys, record.unread = None, True
        elif not record.attempts:
            # It was in another region meanwhile, which did not take it.
            record.decision, record.elsewhere, record.hop = _no_decision(pool, request, rejected), None, request.hop
        record.service = request.service
        self._end(record, REJECTED, monotonic(), rejected.code)
        return rejection(rejected, pause_s)


def _new_record(
    decision: Decision, pool: LivePool, request: GatewayRequest, attempts: tuple[str, ...], asked_s: float
) -> DecisionRecord:
    """Return the record of a decision made now, without any events."""
    return DecisionRecord(
        decision,
        pool,
        request.tenant_id,
        request.key_source,
        request.arrived_s,
        request.ttft_slo_s,
        time() - (monotonic() - request.arrived_s),
        attempts,
        session_id=request.session_id,
        client_request_id=request.client_request_id,
        asked_model=request.asked_model,
        agent=request.agent,
        workflow_id=request.workflow_id,
        slo_class=request.slo_class,
        priority=request.priority,
        asked_s=asked_s,
        tracked=request.tracked and not request.reporter,
        proxied=request.proxied,
        reporter=request.reporter,
        witness=request.witness if request.comparable else None,
        salted=request.salted,
        hop=request.hop,
        keys=request.keys,
        door=request.door,
        parent_session=request.parent_session,
        reporting_tenant=request.reporting_tenant,
        service=request.service,
        key_id=request.key_id,
        tokenizers=request.tokenizers,
    )


async def _placed_by_name(pool: LivePool, request: GatewayRequest, excluded: frozenset[str], *, hold: bool) -> Placed:
    """Return the outcome on an engine that serves the alias or adapter. Any other engine would answer 404.

    The router ignores exclusions that leave no engine, so its choice is checked: a request that has waited for an
    engine that left gets another engine without waiting.
    """
    for waits in (hold, False):
        able = pool.names.engines(request.asked_model) & pool.accepting
        if not able:
            break
        lacking = pool.names.lacking(request.asked_model, pool.accepting)
        outcome = await pool.decide(
            request,
            hold=waits,
            excluded=lacking | excluded if able - excluded else lacking,
        )
        if not isinstance(outcome, Dispatched) or pool.names.engines(request.asked_model) >= {
            *_engines_of(outcome.decision)
        }:
            return outcome
        pool.observe(Failed(request.request_id))
    return Rejected(request.request_id, NO_ENGINE, 1.0)


def _engines_of(decision: Decision) -> tuple[str, ...]:
    """Return the engines that the decision chose, in the order of their legs."""
    pair = decision.pair
    return (decision.engine_id,) if pair is None else (decision.engine_id, pair.engine_id)


def _forwarded(pool: LivePool, request: GatewayRequest) -> Decision:
    """Return the placeholder decision of a request that another region gets."""
    return _no_decision(pool, request, Rejected(request.request_id, FORWARDED, 0.0))


def _no_decision(pool: LivePool, request: GatewayRequest, rejected: Rejected) -> Decision:
    """Return the placeholder decision of a request that was rejected."""
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
        # It was rejected at this moment, after its candidates were evaluated.
        monotonic(),
        candidates=rejected.candidates,
    )
    arms = pool.router.arms
    return decision if arms.candidate_arms is None else arms.signed(decision, request)
