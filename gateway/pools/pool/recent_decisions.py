"""Decisions of the last minutes with their outcomes, in a bounded ring in memory without prompts."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING

import msgspec

from gateway.contracts.stored_decision import ServiceStory
from gateway.pools.traffic.traffic_window import COMPLETED, FAILED, REJECTED
from kvstore.connector.engine_params import KvOutcome
from routing.advisories.advised_sessions import StoredAdvisory
from routing.values.decision import Decision, Elsewhere
from routing.values.hop import Hop

if TYPE_CHECKING:
    from gateway.pools.pool.live_pool import LivePool

DEFAULT_CAPACITY = 20_000
PER_ENGINE = 16
"""Decisions kept per engine: as many as an operator reads at a glance."""
MAX_ENGINES = 4096
"""Limit of engines whose decisions are kept separately. The one with the oldest latest decision is dropped first."""


class DecisionRecord(msgspec.Struct, gc=False):
    """One decision and its outcome so far. Mutable: filled in while the request runs.

    `*_s` are monotonic seconds of this process, `arrived_at` unix seconds. `outcome` is empty while the request runs,
    then completed, failed, rejected, cancelled or client_error.
    """

    decision: Decision
    pool: LivePool
    tenant_id: str
    key_source: str
    arrived_s: float
    ttft_slo_s: float
    arrived_at: float
    """The same moment as `arrived_s`: each other time in unix seconds follows from it."""
    attempts: tuple[str, ...]
    """Engines in the order in which they were tried."""
    first_token_s: float | None = None
    finished_s: float | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    outcome: str = ""
    error: str = ""
    """An error code, never text of an engine or client."""
    handed_over_s: float | None = None
    """When the prefill engine finished, if another engine decodes."""
    engine_prompt_tokens: int | None = None
    """The prompt's length as counted by the engine."""
    session_id: str = ""
    """The session id from the caller. Only keyed digests of it leave the process."""
    client_request_id: str = ""
    asked_model: str = ""
    """The requested alias or adapter; empty: the served model."""
    agent: str = ""
    workflow_id: str = ""
    slo_class: str = ""
    priority: int = 0
    asked_s: float | None = None
    """When the router was first asked for an engine. The time before that was the gateway's own."""
    tracked: bool = True
    """Whether a trusted caller will report its end."""
    proxied: bool = False
    """Whether this gateway forwards the request and therefore sees its end."""
    reporter: str = ""
    """The only tenant whose report is the source of the request's facts; empty: the facts are trusted."""
    witness: str | None = ""
    """The tenant whose requests alone cannot lower an engine's trust; empty for an operator's key or a sole tenant.
    None: the reported hits reveal nothing about the engine's index.
    """
    salted: bool = False
    """Whether its blocks have a cache salt in the engine."""
    late: bool = False
    """Whether the objective was missed: first token too late, rejected or failed. Set when the request ends."""
    recorded: bool = False
    """Whether it was sent to the request log before its end, which was not reported in time."""
    load_ordered: int = 0
    """Leading blocks that its engine was instructed to load from a node manager; 0: none."""
    load_node: str = ""
    load_holders: tuple[str, ...] = ()
    """Nodes that can send the load of the latest decision, in the order to try them."""
    load: KvOutcome | None = None
    """The engine's report on the load."""
    load_inferred: bool = False
    """Whether `load` is inferred from the cached tokens, because the engine reported none."""
    advisory: StoredAdvisory | None = None
    """Outcome of its advisory."""
    hop: Hop | None = None
    """The request's hop to or from another region."""
    elsewhere: Elsewhere | None = None
    """The other region that has the request now."""
    operation: str = "chat"
    """OpenTelemetry GenAI name of the operation; a proxied request's is its endpoint's."""
    keys: tuple[int, ...] | None = None
    """Keys of the prompt's blocks until its traffic is recorded; None: it is recorded, or will not be."""
    door: str = ""
    """The way by which the request came (gateway.requests.caller_facts)."""
    parent_session: str = ""
    reporting_tenant: str = ""
    """The tenant of the trusted proxy that reports the request; empty: its caller reports it, or this gateway sees it.
    """
    service: ServiceStory | None = None
    key_id: str = ""
    """The API key whose use it is; empty: none."""
    unread: bool = False
    """Whether it was rejected before its prompt was read, so that its length is unknown."""
    tokenizers: tuple[tuple[str, float], ...] = ()
    """Engines whose tokenizers it waited for, with the seconds of each wait."""
    failures: tuple[tuple[str, str, float, float], ...] = ()
    """(Engine, cause, when it was chosen, when it failed) of each attempt that another one followed."""
    usage_expires_ms: int = 0
    """Unix milliseconds after which the usage ledger does not wait for its end; 0: it ends here; -1: it was counted."""

    @property
    def decided_at(self) -> float:
        """Return when the latest decision was made, in unix seconds."""
        return self.arrived_at + self.decision.decided_s - self.arrived_s

    @property
    def model_name(self) -> str:
        """Return the name of the model that the request used."""
        return self.asked_model or self.pool.entry.served_model

    @property
    def ttft_s(self) -> float | None:
        """Return the seconds from arrival to the first token, None if there was none."""
        return None if self.first_token_s is None else self.first_token_s - self.arrived_s

    @property
    def tpot_s(self) -> float | None:
        """Return the mean seconds per output token after the first, None if the first token or the tokens' number is
        unknown, or if there was only one.
        """
        first_s, end_s, tokens = self.first_token_s, self.finished_s, self.output_tokens
        if first_s is None or end_s is None or tokens is None or tokens < 2:
            return None
        return (end_s - first_s) / (tokens - 1)

    @property
    def on_time(self) -> bool:
        """Return whether the complete answer arrived and met the objective."""
        return self.outcome == COMPLETED and not self.late

    def misses_objective(self) -> bool:
        """Return whether the known facts miss the objective: first token too late, rejected or failed."""
        if self.outcome in (FAILED, REJECTED):
            return True
        first_s = self.first_token_s
        # Where no first token was seen (an answer in one piece), only the wait at the gateway can be judged.
        return (self.decision.queued_s if first_s is None else first_s - self.arrived_s) > self.ttft_slo_s


def _chose(decision: Decision, engine_id: str) -> bool:
    pair = decision.pair
    return decision.engine_id == engine_id or (pair is not None and pair.engine_id == engine_id)


class RecentDecisions:
    """Records by decision id; the oldest is dropped at `capacity`. The last few of each engine are indexed.

    The loop's thread adds records; any thread can read.
    """

    def __init__(self, capacity: int = DEFAULT_CAPACITY) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, not {capacity}")
        self._capacity = capacity
        # A plain dict would scan its deleted front for each oldest entry; an OrderedDict links them.
        self._records: OrderedDict[str, DecisionRecord] = OrderedDict()
        self._by_engine: dict[str, deque[DecisionRecord]] = {}
        self._at_once: deque[DecisionRecord] = deque(maxlen=capacity)
        self._waited: deque[DecisionRecord] = deque(maxlen=capacity)

    def __len__(self) -> int:
        return len(self._records)

    def add(self, record: DecisionRecord, *, again: bool = False) -> None:
        """Store the record. `again`: it is already stored, and is added to its new engine's list."""
        records, decision = self._records, record.decision
        records[decision.decision_id] = record
        if not again:
            (self._waited if decision.queued_s > 0.0 else self._at_once).append(record)
        if len(records) > self._capacity:
            records.popitem(last=False)
        engine_id = decision.engine_id
        if engine_id in self._by_engine:
            self._by_engine[engine_id].append(record)
        elif engine_id:
            self._add_to_engine(engine_id, record)
        pair = decision.pair
        if pair is not None:
            self._add_to_engine(pair.engine_id, record)

    def take_added(self) -> tuple[list[DecisionRecord], list[DecisionRecord]]:
        """Return (immediately dispatched records, dispatched after a wait) added since the last call, as far as they
        are kept.
        """
        added = list(self._at_once), list(self._waited)
        self._at_once.clear()
        self._waited.clear()
        return added

    def get(self, decision_id: str) -> DecisionRecord | None:
        """Return the record, None if it was dropped."""
        return self._records.get(decision_id)

    def of_engine(self, engine_id: str) -> list[DecisionRecord]:
        """Return the last records that chose this engine for either leg, newest first, without those that moved to
        another engine.
        """
        records = self._by_engine.get(engine_id, ())
        # list() copies within one step of the interpreter, so the loop may go on adding meanwhile.
        return [record for record in reversed(list(records)) if _chose(record.decision, engine_id)]

    def running(self) -> list[DecisionRecord]:
        """Return the records of requests that have not ended, without those whose end nothing will report."""
        # list() copies within one step of the interpreter, so the loop may go on adding meanwhile.
        return [record for record in list(self._records.values()) if not record.outcome and not record.recorded]

    def _add_to_engine(self, engine_id: str, record: DecisionRecord) -> None:
        by_engine = self._by_engine
        records = by_engine.get(engine_id)
        if records is None:
            if len(by_engine) >= MAX_ENGINES:
                del by_engine[min(by_engine, key=lambda item: by_engine[item][-1].arrived_s)]
            records = by_engine[engine_id] = deque(maxlen=PER_ENGINE)
        records.append(record)

    def find(self, decision_id: str, tenant_id: str) -> DecisionRecord | None:
        """Return the record if it is kept and belongs to this tenant, else None."""
        record = self._records.get(decision_id)
        return record if record is not None and record.tenant_id == tenant_id else None
