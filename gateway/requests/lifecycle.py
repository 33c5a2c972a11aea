"""Places one request and follows it to its end; shared by the decision API and the proxy.

Every request that gets here ends in exactly one of completed, failed, refused, cancelled or client_error. The record
holds its state; the listeners get each change once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

from gateway.base.event_log import log_event
from gateway.contracts.key_source import NONE
from gateway.http.openai_error import ApiError
from gateway.http.overload_rejection import lag_rejection
from gateway.pool.recent_decisions import DecisionRecord, RecentDecisions
from gateway.pool.request_listener import RequestListener, RequestListeners
from gateway.process.drain import CUT_OFF
from gateway.regions.region_routing import Elsewhere, RegionRouting
from gateway.requests.decision_records import engines_of, new_record, no_decision
from gateway.requests.objectives import inference_request
from gateway.requests.prompt_keys import KeyedPrompt
from gateway.requests.rejections import rejection
from gateway.requests.wanted import Wanted
from gateway.traffic.traffic_window import CANCELLED, COMPLETED, FAILED, REJECTED
from kvstore.connector.engine_params import KvOutcome
from routing.values.decision import Dispatched, Rejected
from routing.values.inference_request import InferenceRequest
from routing.values.observation import Completed, Failed, FirstToken
from routing.values.reasons import FORWARDED

if TYPE_CHECKING:
    from gateway.base.metrics import GatewayMetrics
    from gateway.pool.live_pool import LivePool

CLIENT_ERROR = "client_error"
"""The engine answered 4xx: the request is over, and neither the engine's nor the fleet's failure."""

_UNREAD = KeyedPrompt((), 0, NONE)
"""The prompt of a request that was rejected before it was read; recordings, which want its shape, leave it out."""


class RequestLifecycle:
    """The way in and out of a pool for single requests."""

    def __init__(self, metrics: GatewayMetrics, recent: RecentDecisions, listeners: Iterable[RequestListener]) -> None:
        self.metrics = metrics
        self.recent = recent
        self._tell = RequestListeners(listeners)

    async def place(
        self,
        pool: LivePool,
        wanted: Wanted,
        keyed: KeyedPrompt,
        *,
        hold: bool,
        excluded: frozenset[str] = frozenset(),
        earlier: DecisionRecord | None = None,
        holding: Callable[[], bool] | None = None,
    ) -> DecisionRecord:
        """Return the record of a dispatched request; raises ApiError with 400, 409, 429 or 503.

        `earlier` is the record of the same request's attempt on another engine, which is continued. `holding` tells
        whether it is still for us to serve (gateway.regions.work_lease).
        """
        request = inference_request(pool.entry, wanted, keyed)
        asked_s = monotonic()
        with self._counted(pool, earlier):
            outcome = await pool.place(request, hold=hold, excluded=excluded, salted=keyed.salted)
        if holding is not None and isinstance(outcome, Dispatched) and not holding():
            # No engine has heard of it yet, and another region may be at work on it by now.
            pool.observe(Failed(request.request_id))
            outcome = Rejected(request.request_id, "taken_back", 1.0)
        return self._taken(pool, request, keyed, outcome, asked_s, earlier, wanted)

    async def place_or_forward(
        self, pool: LivePool, wanted: Wanted, keyed: KeyedPrompt, regions: RegionRouting, avoided: frozenset[str]
    ) -> tuple[DecisionRecord, Elsewhere | None]:
        """Return the record of a request that is dispatched here, or goes to another region; raises as `place` does.

        `avoided` are regions that have failed it.
        """
        request = inference_request(pool.entry, wanted, keyed)
        asked_s = monotonic()
        with self._counted(pool, None):
            outcome = await regions.place(
                pool, request, lambda: pool.place(request, hold=True, salted=keyed.salted), avoided
            )
        if not isinstance(outcome, Elsewhere):
            return self._taken(pool, request, keyed, outcome, asked_s, None, wanted), None
        decision = no_decision(pool, request, Rejected(request.request_id, FORWARDED, 0.0))
        record = new_record(decision, pool, request, keyed, (), asked_s)
        record.proxied, record.hop = True, outcome.hop
        self.recent.add(record)
        return record, outcome

    @contextmanager
    def _counted(self, pool: LivePool, earlier: DecisionRecord | None) -> Iterator[None]:
        """Count a client that leaves while its request has no engine."""
        try:
            yield
        except asyncio.CancelledError:
            if earlier is None:
                self.metrics.requests.inc(pool.entry.pool_id, CANCELLED)
            raise

    def reject_if_late(self, pool: LivePool, wanted: Wanted) -> None:
        """Raise ApiError 429 where the gateway cannot keep up, before anybody is asked to read the prompt."""
        rejected = lag_rejection(pool.lag, pool.router, wanted.request_id)
        if rejected is not None:
            request = inference_request(pool.entry, wanted, _UNREAD)
            raise self._rejected(pool, request, _UNREAD, rejected, monotonic(), None, wanted)

    def place_at_once(self, pool: LivePool, wanted: Wanted, keyed: KeyedPrompt) -> DecisionRecord:
        """Return the record of a request that does not wait for its engine; raises ApiError as `place` does."""
        request = inference_request(pool.entry, wanted, keyed)
        asked_s = monotonic()
        outcome = pool.place_at_once(request, keyed.salted)
        return self._taken(pool, request, keyed, outcome, asked_s, None, wanted)

    def observed(self, pool: LivePool, wanted: Wanted, keyed: KeyedPrompt, engine_id: str) -> DecisionRecord | None:
        """Return the record of a request that others have sent to the engine; None where it takes no work.

        Raises ApiError 400 for a prompt over the pool's limit or an unknown SLO class.
        """
        request = inference_request(pool.entry, wanted, keyed)
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
        """Begin or continue the record of a dispatched request; raises ApiError for a rejection."""
        if isinstance(outcome, Rejected):
            raise self._rejected(pool, request, keyed, outcome, asked_s, earlier, wanted)
        took_s = monotonic() - asked_s
        decision, record = outcome.decision, earlier
        if record is None:
            tried = (decision.engine_id,) if decision.pair is None else engines_of(decision)
            record = new_record(decision, pool, request, keyed, tried, asked_s)
            record.tracked = wanted.tracked and not wanted.reporter
            record.hop = wanted.hop
            record.agent, record.workflow_id = wanted.agent, wanted.workflow_id
            if wanted.proxied:
                record.proxied = True
            elif wanted.reporter:
                record.reporter = wanted.reporter
        else:
            record.decision = decision
            record.attempts += engines_of(decision)
            record.handed_over_s = record.cached_tokens = None
        self.recent.add(record)
        for tell in self._tell.dispatched:
            tell(record, request, took_s, earlier is not None)
        return record

    def first_token(self, record: DecisionRecord, now: float) -> None:
        """Note that the engine sent its first token; a second call changes nothing."""
        if record.first_token_s is None and not record.outcome:
            record.first_token_s = now
            for tell in self._tell.first_token:
                tell(record, now)

    def assume_first_token(self, record: DecisionRecord) -> None:
        """Let the router take the prefill for over, which nobody sees; the record keeps no TTFT."""
        record.pool.observe(FirstToken(record.decision.decision_id))

    def handed_over(self, record: DecisionRecord, now: float, cached_tokens: int | None) -> None:
        """Note that the prefill engine is done and its decode engine goes on; a second call changes nothing.

        `cached_tokens` are those of the prefill; the decode engine's own figure counts what came from there.
        """
        if record.decision.pair is None or record.handed_over_s is not None or record.outcome:
            return
        record.handed_over_s = now
        record.cached_tokens = cached_tokens
        for tell in self._tell.handed_over:
            tell(record, now, True)

    def prefill_left_out(self, record: DecisionRecord) -> None:
        """Note that the decode engine computes the prompt itself: the other one is free, and taught nothing."""
        for tell in self._tell.handed_over:
            tell(record, monotonic(), False)

    def loaded(self, record: DecisionRecord, outcome: KvOutcome | None) -> None:
        """Note what the engine says of the KV that it was to load; None: it says nothing.

        A decode engine was to load nothing: what it says is not of the prompt.
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
        """Note the whole answer; a second end of the same request changes nothing.

        `prompt_tokens`: as the engine counted them.
        """
        if record.outcome:
            return
        if record.handed_over_s is None:
            record.cached_tokens = cached_tokens
        record.output_tokens = output_tokens
        record.engine_prompt_tokens = prompt_tokens
        ttft_s = record.ttft_s
        # Where no first token was seen (an answer in one piece), only the wait at the gateway can be judged.
        on_time = (record.decision.queued_s if ttft_s is None else ttft_s) <= record.ttft_slo_s
        self._end(record, COMPLETED, now, on_time=on_time)

    def failed(self, record: DecisionRecord, now: float, error: str) -> None:
        """Note that the request ended without a whole answer; `error` is a code."""
        self._end(record, FAILED, now, error)

    def cancelled(self, record: DecisionRecord, now: float) -> None:
        """Note that the client went away."""
        self._end(record, CANCELLED, now, "client_gone")

    def cut_off(self, record: DecisionRecord, now: float) -> None:
        """Note that the end of this process cut the answer off, for which no engine is to blame."""
        self._end(record, FAILED, now, CUT_OFF)

    def client_error(self, record: DecisionRecord, now: float, status: int) -> None:
        """Note that the engine rejected the request for what it is."""
        self._end(record, CLIENT_ERROR, now, f"http_{status}")

    def rejected_by_engine(self, record: DecisionRecord, engine_id: str, status: int) -> None:
        """Note the same of an answer that this gateway saw."""
        now = monotonic()
        record.pool.progress.engine(engine_id).rejected(now)
        self.client_error(record, now, status)

    def left(self, record: DecisionRecord, *, failed: bool) -> None:
        """Give the engine's reservation back although the request goes on, on another engine."""
        for tell in self._tell.left:
            tell(record, failed)

    def let_go(self, record: DecisionRecord) -> None:
        """Give the engine back for a request that may never be sent; what becomes of it can still be told."""
        record.pool.observe(Failed(record.decision.decision_id))

    def assume_over(self, record: DecisionRecord) -> None:
        """Give the engine back for a request of which nobody tells: it is taken to have gone as estimated."""
        if not record.outcome and record.first_token_s is None:
            record.pool.observe(Completed(record.decision.decision_id, None))

    def _end(self, record: DecisionRecord, outcome: str, now: float, error: str = "", *, on_time: bool = False) -> None:
        if record.outcome:
            return
        record.outcome = outcome
        record.error = error
        record.finished_s = now
        for tell in self._tell.ended:
            tell(record, now, on_time)
        if outcome == FAILED:
            decision = record.decision
            log_event(
                "request_failed",
                decision_id=decision.decision_id,
                pool_id=decision.pool_id,
                engine_id=decision.engine_id,
                error=error,
            )

    def _rejected(
        self,
        pool: LivePool,
        request: InferenceRequest,
        keyed: KeyedPrompt,
        rejected: Rejected,
        asked_s: float,
        earlier: DecisionRecord | None,
        wanted: Wanted,
    ) -> ApiError:
        record = earlier
        if record is None:
            record = new_record(no_decision(pool, request, rejected), pool, request, keyed, (), asked_s)
            record.hop = wanted.hop
            self.recent.add(record)
            if keyed is _UNREAD:
                record.keys = None
        self._end(record, REJECTED, monotonic(), rejected.code)
        return rejection(rejected)
