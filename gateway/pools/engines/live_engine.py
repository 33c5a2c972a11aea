"""Gateway-side state of one engine: breaker, adapter, last report, incarnation, event intake."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

import aiohttp
from msgspec.structs import replace

from gateway.base.engine_api_keys import REJECTED_KEY, engine_key
from gateway.base.event_log import log_event
from gateway.base.loop_lag import LoopLag
from gateway.base.settings import GatewaySettings
from gateway.contracts.engine_report import EngineReport
from gateway.contracts.snapshot import EngineEntry
from gateway.pools.engines.breaker import PAUSED, UNHEALTHY, Breaker
from gateway.pools.engines.health_probe import EngineAnswerError, EnginePausedError, EngineUnreachableError
from gateway.pools.engines.hit_words import verdict_words
from gateway.pools.engines.index_trust import IndexTrust
from gateway.pools.engines.vllm_adapter import ModelCard, VllmAdapter, rank_header
from gateway.pools.events.event_ledger import BLIND, DEGRADED, WEIGHTS, Trust
from gateway.pools.events.event_salts import SaltsSeen
from gateway.pools.events.kv_event_intake import KvEventIntake
from gateway.pools.traffic.past_moments import PastMoments
from planning.facts.fleet_facts import known
from routing.cost.cost_fit import FittedCost
from routing.ledger.fleet_view import EngineFacts

READY = "ready"

COUNTED_S = 10.0
"""Older counter readings do not show whether the counters advance."""
MODELS_S = 60.0
"""Interval of reading the engine's models, which also checks the gateway's key. /health and /metrics need no key."""
MAX_MODELS = 4096
"""Limit of model names stored per engine."""
PROVIDERS = ("vllm", "sglang")
UNKNOWN = "_OTHER"
"""OpenTelemetry's value for what it has no name for."""
_SAME_PROCESS_S = 1.0
"""Two reported process starts within this many seconds count as the same start."""
_UNSALTED = Trust(DEGRADED, "its events have no cache salts; the index is built from this gateway's dispatches")
_BY_DISPATCHES = Trust(DEGRADED, "the index is built from this gateway's dispatches")


class LiveEngine:
    """One engine's state. Callbacks of the breaker and the intake notify the pool of changes.

    Mutable: all public attributes, accessed only on the event loop's thread.
    """

    models: tuple[ModelCard, ...] = ()
    """The engine's last list of models. An unchanged card keeps its first `created`."""
    on_models: Callable[[], None] | None = None
    """Called when the list of models has changed."""

    def __init__(
        self,
        entry: EngineEntry,
        incarnation: int,
        *,
        served_model: str,
        session: aiohttp.ClientSession,
        settings: GatewaySettings,
        lag: LoopLag,
        now: float,
        signs: Callable[[], int] = lambda: 0,
    ) -> None:
        """`signs` returns the number of signs of work that this gateway has seen from the engine."""
        self.entry = entry
        self.incarnation = incarnation
        self.adapter = VllmAdapter(
            session,
            entry.url,
            served_model=served_model,
            bearer=engine_key(entry.key_variable, settings.engine_bearer),
            timeout_s=settings.limits.probe_timeout_s,
            rank=entry.rank,
        )
        self.breaker = Breaker(settings.breaker, now)
        self.intake: KvEventIntake | None = None
        self.report: EngineReport | None = None
        self.report_at: float | None = None
        """Monotonic seconds of the last report."""
        self.answered_at: float | None = None
        """Monotonic seconds of the last report that the engine's own answer made."""
        self.report_times = PastMoments()
        self.hits = IndexTrust()
        self.created_at = now
        self.salts_seen = SaltsSeen()
        self.shunned = False
        """Whether engine health excludes the engine because others can do its work."""
        self.probed = asyncio.Event()
        """Set after the first direct probe, regardless of its result."""
        self.late = ""
        """Why the gateway's own probe was late although the engine is alive, as a sentence; else empty."""
        self.key_rejected = False
        """Whether the engine rejects this gateway's key."""
        self.lag = lag
        self._settings = settings
        self._incarnated_at = now
        self._incarnated_unix = time.time()
        self._signs = signs
        self._counted: tuple[float, float] | None = None
        """(Tokens counted by the engine, monotonic second of that reading)."""
        self._counters_wanted = False
        self._process_start: float | None = None
        self._models_due_s = now
        self._wake = asyncio.Event()
        self.breaker.on_doubt = self._wake.set
        self._bootstrap: tuple[int, int | None] | None = None
        self._own_headers = rank_header(entry.rank)
        self._take_key()

    @property
    def provider(self) -> str:
        """Return the engine's software as its list of models states it: one of PROVIDERS, or UNKNOWN."""
        owner = self.models[0].owned_by if self.models else None
        return owner if owner in PROVIDERS else UNKNOWN

    def addressed(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        """Return the headers with the engine's API key and rank added."""
        return {**headers, **self._own_headers} if self._own_headers else headers

    def _take_key(self) -> None:
        if self.adapter.bearer:
            self._own_headers["authorization"] = f"Bearer {self.adapter.bearer}"

    async def bootstrap_port(self) -> int | None:
        """Return the port that SGLang's decode engines connect to, None if the engine uses vLLM's hand-over.

        The engine is asked once per process.
        """
        if self._bootstrap is None or self._bootstrap[0] != self.incarnation:
            try:
                self._bootstrap = self.incarnation, await self.adapter.bootstrap_port()
            except (EngineUnreachableError, EngineAnswerError):
                return None  # and the next request asks again
        return self._bootstrap[1]

    def probe_now(self, *, counters: bool = False) -> None:
        """Probe the engine now because of new evidence. `counters`: read its counters too."""
        self._counters_wanted = self._counters_wanted or counters
        self._wake.set()

    def doubt_models(self) -> None:
        """Read the engine's models now: it rejected a request for the gateway's key, or for a model that it lists."""
        self._models_due_s = float("-inf")
        self._wake.set()

    def counted(self, now: float) -> float | None:
        """Return the number of tokens that the engine has counted, None without a recent reading."""
        return self._counted[0] if self._counted is not None and now - self._counted[1] <= COUNTED_S else None

    @property
    def lost(self) -> bool:
        """Return whether no result is expected from the engine."""
        return self.breaker.lost

    @property
    def stuck(self) -> bool:
        """Return whether unanswered requests should move to other engines because this one reports itself as idle."""
        asleep = self.shunned and self.report is not None and self.report.asleep is True
        return self.breaker.paused or asleep

    @property
    def trust(self) -> Trust:
        """Return the trust in this engine's prefix index."""
        if self.intake is None:
            return Trust(BLIND, "this engine has no event endpoint")
        return self.intake.trust

    def facts(
        self, *, by_dispatches: bool, accepts: bool, learned: FittedCost | None = None, share: float = 1.0
    ) -> EngineFacts:
        """Return the facts for the router. The trust of an index fed by our own dispatches is at most degraded.

        `learned` is the cost of the engine's kind and replaces the policy's cost; it already includes speeds. An engine
        with only a `share` of its usual load appears slower by that factor.
        """
        weight = self.index_trust(by_dispatches=by_dispatches).weight
        engine_id, speed = self.entry.engine_id, self.entry.speed * share
        if learned is None:
            return EngineFacts(engine_id, self.incarnation, accepts, speed, weight, role=self.entry.role, share=share)
        speed *= learned.speeds.get(engine_id, 1.0)
        costs = learned.prefill, learned.decode
        role = self.entry.role
        return EngineFacts(engine_id, self.incarnation, accepts, speed, weight, *costs, role=role, share=share)

    def index_trust(self, *, by_dispatches: bool) -> Trust:
        """Return the trust used for routing and displayed: the minimum of the trust by events and by hits."""
        if self.salts_seen.missing:
            trust = _UNSALTED
        elif by_dispatches:
            trust = _BY_DISPATCHES
        else:
            trust = self.trust
        verdict = self.hits.verdict
        return Trust(verdict.grade, verdict_words(verdict)) if WEIGHTS[verdict.grade] < trust.weight else trust

    def take_report(self, report: EngineReport, now: float, unix: float) -> bool:
        """Apply a probe report unless it is older than the last. Return True if it shows a new engine process."""
        if self.report is not None and report.at < self.report.at:
            return False
        age_s = max(0.0, unix - report.at)
        self.report = report
        self.report_at = now - age_s
        if report.reachable:
            self.answered_at = self.report_at
        self.report_times.note(self.report_at)
        if age_s > self._settings.report_stale_s:
            return False
        if report.full:
            # A light report only repeats the counters of the last full one.
            self._count(report.prompt_tokens_total, report.generated_tokens_total, self.report_at)
        if not report.serves:
            # An engine that others cannot reach, or hold to be sick, is probed; reports alone take nothing out.
            self._wake.set()
        return self._is_new_process(report.process_start)

    def report_age_s(self, now: float) -> float | None:
        """Return the age of the last report in seconds, None without a report."""
        return None if self.report_at is None else now - self.report_at

    def running_now(self, now: float) -> int | None:
        """Return the number of running requests that the engine reports, None without a recent report."""
        age_s = self.report_age_s(now)
        fresh = self.report is not None and age_s is not None and age_s <= self._settings.report_stale_s
        return self.report.running if fresh and self.report is not None else None

    def new_incarnation(self, now: float) -> None:
        """Increment the incarnation for a new process of the engine."""
        self.incarnation += 1
        self.hits.forget()
        self.salts_seen = SaltsSeen(self.salts_seen.named)
        # Adapters that were loaded at run time are gone with the process.
        self._models_due_s = now
        self._incarnated_at = now
        self._incarnated_unix = time.time()

    def incarnated_since(self, moment: float) -> bool:
        """Return whether the incarnation changed at or after this monotonic time."""
        return self._incarnated_at >= moment

    async def watch(self) -> None:
        """Probe the engine directly: at once, while it is suspect, and when its reports are stale."""
        while True:
            started = time.monotonic()
            await self._probe()
            self.probed.set()
            if self.breaker.suspect:
                await asyncio.sleep(max(0.0, started + self._settings.probe_interval_s - time.monotonic()))
                continue
            await self._wait(self._settings.report_stale_s / 2)
            while self._is_well(time.monotonic()):
                await self._wait(self._settings.report_stale_s / 2)

    def _is_well(self, now: float) -> bool:
        age_s = self.report_age_s(now)
        reported = age_s is not None and age_s <= self._settings.report_stale_s
        well = reported and not self.breaker.suspect and not self._wake.is_set()
        return well and now < self._models_due_s

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _probe(self) -> None:
        # Before the probe: new evidence during it starts the next one.
        self._wake.clear()
        begun_s, signs = time.monotonic(), self._signs()
        self.late = ""
        try:
            self.late = await self.adapter.probe()
        except EngineUnreachableError as error:
            now = time.monotonic()
            if error.timed_out and not self.lag.vouches(begun_s, now):
                # The answer may be in the socket, unread. The engine is probed again, since nothing was learned.
                self._wake.set()
            elif error.timed_out and self._signs() != signs:
                self.late = f"{error}, but requests are answered"
            else:
                self.breaker.observe_probe(False, str(error), now, refused=error.refused)
        except EngineAnswerError as error:
            cause = PAUSED if isinstance(error, EnginePausedError) else UNHEALTHY
            self.breaker.observe_probe(False, str(error), time.monotonic(), cause=cause)
        else:
            if self._counters_wanted:
                await self._read_counters()
            if not self.breaker.stalled or await self._generates():
                self.breaker.observe_probe(True, "", time.monotonic())
            await self._read_models()

    async def _read_models(self) -> None:
        now = time.monotonic()
        if now < self._models_due_s:
            return
        # Before the answer, so that a doubt during it has them read again.
        self._models_due_s = now + MODELS_S
        if await self.adapter.renew_key(engine_key(self.entry.key_variable, self._settings.engine_bearer)):
            self._take_key()
            log_event("engine_key_renewed", engine=self.entry.engine_id, variable=self.entry.key_variable)
        try:
            cards = await self.adapter.models()
        except EngineUnreachableError:
            return
        except EngineAnswerError as error:
            self.key_rejected = error.status in REJECTED_KEY
        else:
            self.key_rejected = False
            self._take_models(cards[:MAX_MODELS])

    def _take_models(self, cards: tuple[ModelCard, ...]) -> None:
        # vLLM answers the time of the question as `created`.
        since = {card.id: card.created for card in self.models}
        cards = tuple(replace(card, created=since.get(card.id) or card.created) for card in cards)
        if cards != self.models:
            self.models = cards
            if self.on_models is not None:
                self.on_models()

    async def _read_counters(self) -> None:
        self._counters_wanted = False
        try:
            metrics = await self.adapter.full_metrics()
        except (EngineUnreachableError, EngineAnswerError):
            return
        self._count(metrics.prompt_tokens_total, metrics.generated_tokens_total, time.monotonic())

    def _count(self, prompt_tokens: float | None, generated_tokens: float | None, now: float) -> None:
        counts = [item for item in (known(prompt_tokens), known(generated_tokens)) if item is not None]
        if counts:
            self._counted = sum(counts), now

    async def _generates(self) -> bool:
        """Return whether the engine completes a one-token request, because its own health report is not enough here."""
        try:
            await self.adapter.generate_one()
        except EngineUnreachableError:
            return False
        except EngineAnswerError as error:
            # A rejection is an answer, too: the engine works.
            return error.status is not None and error.status < 500
        return True

    def _is_new_process(self, process_start: float | None) -> bool:
        """Return whether the process start is new. A restart that was already counted by another sign is not counted
        again.
        """
        if process_start is None:
            return False
        known, self._process_start = self._process_start, process_start
        if known is None or abs(process_start - known) < _SAME_PROCESS_S:
            return False
        return process_start > self._incarnated_unix
