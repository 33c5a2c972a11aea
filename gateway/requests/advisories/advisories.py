"""Handles advisories: moves the KV of their sessions near the next engine, and judges both afterwards.

An advisory can be lost, repeated, late or wrong, so nothing depends on one for correctness. The newest advisory of a
session wins; a request, an invalidation or its time limit ends it. Everything runs on the event loop's thread, and no
request waits.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Set
from typing import TYPE_CHECKING, TypeVar

import msgspec
from typing_extensions import override

from gateway.contracts.advisory import (
    FORWARDED,
    IGNORED,
    REPLACED,
    SHED,
    SPURIOUS,
    UNKNOWN,
    USEFUL,
    WITHDRAWN,
    Advisory,
    AdvisoryTallies,
    SourceTally,
)
from gateway.contracts.kv_move import MOVED, USELESS, KvMoveRow
from gateway.pools.pool.request_listener import RequestListener
from gateway.requests.advisories.advisory_tally import AdvisoryTally
from gateway.requests.advisories.engine_prefetches import EnginePrefetches, EnginePrefetchOrder
from gateway.requests.advisories.open_advisory import ASKED, CAME, FAILED, OpenAdvisory
from gateway.requests.advisories.session_table import KnownSession, SessionTable
from gateway.requests.advisories.source_limits import SourceLimits
from planning.kv_moves.kv_move import ADVISORY, MAX_BLOCKS, KvMove
from routing.advisories.advised_routing import Staging
from routing.advisories.advised_sessions import StoredAdvisory
from routing.policy.policy_document import OFF
from routing.values.decision import Decision
from routing.values.inference_request import InferenceRequest

if TYPE_CHECKING:
    from gateway.base.loop_lag import LoopLag
    from gateway.kv.moves.kv_moves import MoveScheduler
    from gateway.pools.pool.live_pool import LivePool
    from gateway.pools.pool.recent_decisions import DecisionRecord
    from kvstore.connector.engine_params import KvOutcome

LEAD_S = 6.9
"""Expected lead in seconds if the sender states none: the median of the study's conversations."""
MAX_OPEN = 50_000
SPURIOUS_IN_A_ROW = 3
"""After this many advisories without a request, no blocks are moved for a session until a request arrives."""
MAX_AGE_S = 30.0
"""Maximum age of advisories from other gateways; older ones are dropped. Machines' clocks must differ by less."""
_MAX_KEPT = 4096
_LEAD_SHARE = 0.1

_Kept = TypeVar("_Kept")


class Advisories(RequestListener):
    """Handles advisories and judges them by the requests that follow.

    Mutable: `_open` (session → open advisory), `_moving` (session → counts of the source whose blocks moved last),
    `_of_move` (move → the same), `_leads` (tenant → expected lead), `_outcomes` (request → its advisory's record, from
    the gateway that decided), and the tables.

    Among several gateways, the one that decides for a pool's requests holds its advisories and reports to the others.
    """

    def __init__(
        self,
        pools: Mapping[str, LivePool],
        orders: MoveScheduler,
        tally: AdvisoryTally,
        lag: LoopLag,
        clock: Callable[[], float] = time.monotonic,
        decides: Callable[[str], bool] = lambda _pool_id: True,
    ) -> None:
        self._pools, self._orders, self.tally, self._lag, self._clock = pools, orders, tally, lag, clock
        self._decides = decides
        """Returns whether this gateway decides for a pool's requests."""
        self.sessions = SessionTable()
        self.limits = SourceLimits()
        self._open: OrderedDict[str, OpenAdvisory] = OrderedDict()
        self._moving: OrderedDict[str, SourceTally] = OrderedDict()
        self._of_move: OrderedDict[str, SourceTally] = OrderedDict()
        self._leads: OrderedDict[str, float] = OrderedDict()
        self._outcomes: OrderedDict[str, StoredAdvisory] = OrderedDict()
        self.prefetches = EnginePrefetches(pools, orders.metrics, self._prefetched)
        orders.listener = self

    def __len__(self) -> int:
        return len(self._open)

    # -- advisories from senders

    def wait_s(self, advisory: Advisory) -> float:
        """Spend one advisory of its source's limit; return the seconds until a retry, 0 if accepted.

        While the event loop is behind, all advisories are shed, because requests have priority.
        """
        now = self._clock()
        wait_s = 1.0 if self._lag.behind else self.limits.take(advisory.tenant_id, advisory.source, now)
        if wait_s:
            self.shed(advisory)
        return wait_s

    def shed(self, advisory: Advisory) -> None:
        """Count an advisory that exceeds a limit."""
        self._count(advisory, self.pool_of(advisory), SHED)

    def pool_of(self, advisory: Advisory) -> str:
        """Return the session's last pool, empty if this gateway neither served nor decided for the session."""
        known = self.sessions.get(advisory.tenant_id, advisory.session_id)
        return known.pool_id if known is not None else ""

    def decides(self, advisory: Advisory) -> bool:
        """Return whether this gateway will decide on the session's next request."""
        pool_id = self.pool_of(advisory)
        return bool(pool_id) and self._decides(pool_id)

    def received(self, advisory: Advisory, age_s: float) -> None:
        """Act on an advisory that another gateway received `age_s` ago, if this gateway decides for the session."""
        if age_s > MAX_AGE_S or not self.decides(advisory):
            return
        if self._lag.behind:
            self._count(advisory, self.pool_of(advisory), SHED)
        else:
            self.advise(advisory, age_s)

    def advise(self, advisory: Advisory, age_s: float = 0.0) -> str:
        """Act on an advisory; return its state (prefetching or reserved), or why nothing was done."""
        now = self._clock()
        said_s = now - age_s
        known = self.sessions.get(advisory.tenant_id, advisory.session_id)
        pool = self._pools.get(known.pool_id) if known is not None else None
        if known is None or pool is None or not pool.serves(advisory.served_model):
            self._count(advisory, "", UNKNOWN)
            return UNKNOWN
        self.tally.source(known.pool_id, advisory.tenant_id, advisory.source).received += 1
        if pool.entry.policy.advisories == OFF:
            self._count(advisory, known.pool_id, IGNORED)
            return IGNORED
        name = _name(advisory.tenant_id, advisory.session_id)
        before = self._open.get(name)
        if age_s and said_s < (known.at_s if before is None else max(known.at_s, before.said_s)):
            # It was overtaken on its way, by a newer one or by the request itself.
            self._count(advisory, known.pool_id, REPLACED)
            return IGNORED
        if before is not None:
            del self._open[name]
            self._count(before.advisory, before.pool_id, REPLACED)
        lead_s = max(0.0, self._lead_s(advisory) - age_s)
        opened = self._advised(advisory, known, pool, before, lead_s, now)
        if opened is None:
            pool.driver.chain.withdraw(advisory.tenant_id, advisory.session_id)
            self._orders.left_queue(name)
            return IGNORED
        opened.said_s = said_s
        self._open[name] = opened
        if len(self._open) > MAX_OPEN:
            self._end(next(iter(self._open)), SPURIOUS, now)
        return opened.state

    def withdraw(self, tenant_id: str, session_id: str, age_s: float = 0.0) -> bool:
        """End a session's advisory; return whether one was open. An unused move counts as spurious.

        The withdrawal is `age_s` old and does not end a newer advisory.
        """
        name, now = _name(tenant_id, session_id), self._clock()
        opened = self._open.get(name)
        if opened is None or opened.said_s > now - age_s:
            return False
        self._end(name, WITHDRAWN, now)
        return True

    def state(self, tenant_id: str, session_id: str) -> OpenAdvisory | None:
        """Return a session's open advisory."""
        return self._open.get(_name(tenant_id, session_id))

    def sweep(self) -> None:
        """End advisories that expired or whose pool is decided elsewhere; call it every second."""
        now = self._clock()
        for name, opened in list(self._open.items()):
            if not self._decides(opened.pool_id):
                self._end(name, FORWARDED, now)
            elif opened.expires_s <= now:
                self._end(name, SPURIOUS, now)

    def tallies(self) -> AdvisoryTallies:
        """Return the counts since the gateway started."""
        now = self._clock()
        return self.tally.tallies(lambda tenant, source: self.limits.trust(tenant, source, now))

    # -- events of requests

    @override
    def dispatched(self, record: DecisionRecord, request: InferenceRequest, took_s: float, again: bool) -> None:
        # A retry is the same request.
        if again:
            return
        tally = self.tally.pool(record.decision.pool_id)
        tally.requests += 1
        tally.prompt_tokens += request.prompt_tokens
        if not request.session_id:
            return
        tally.sessions += 1
        tally.rule = record.pool.entry.policy.advisories
        if tally.rule == OFF:
            return
        record.advisory = self._outcomes.pop(record.decision.decision_id, None)
        if (stored := self._arrived(request, record.decision)) is not None:
            record.advisory = stored

    def decided(self, request: InferenceRequest, decision: Decision) -> StoredAdvisory | None:
        """Record another gateway's decision; return the advisory's effect on that request."""
        pool = self._pools.get(decision.pool_id)
        if not request.session_id or pool is None or pool.entry.policy.advisories == OFF:
            return None
        return self._arrived(request, decision)

    def outcome(self, request_id: str, stored: StoredAdvisory) -> None:
        """Record an advisory's effect on our request, which another gateway decided."""
        _keep(self._outcomes, request_id, stored)

    @override
    def ended(self, record: DecisionRecord, now: float) -> None:
        tally, ttft_s = self.tally.pool(record.decision.pool_id), record.ttft_s
        if record.load is not None and record.load.loaded_blocks:
            tally.loads += 1
            tally.load_s += record.load.seconds
        if not record.session_id:
            return
        if ttft_s is not None and record.advisory is not None:
            tally.advised += 1
            tally.advised_ttft_s += ttft_s
        elif ttft_s is not None:
            tally.others += 1
            tally.others_ttft_s += ttft_s
        known = self.sessions.get(record.tenant_id, record.session_id)
        if known is not None and record.output_tokens:
            known.tokens += record.output_tokens

    # -- events of orders

    def moved(self, row: KvMoveRow, asked_by: Set[str]) -> None:
        """Record the end of a move that an advisory requested."""
        for name in asked_by:
            tally = self._moving.get(name)
            if tally is not None:
                tally.bytes_moved += row.bytes
                _keep(self._of_move, row.order_id, tally)
            opened = self._open.get(name)
            if opened is not None and opened.moved_to == row.target:
                opened.move = CAME if row.outcome == MOVED else FAILED
                opened.moved_blocks, opened.moved_bytes, opened.move_s = row.blocks, row.bytes, row.seconds
                if opened.move == CAME:
                    self._prefetch(opened)

    def dropped(self, asked_by: Set[str]) -> None:
        """Record that a move was dropped before it began, in favor of other moves."""
        for name in asked_by:
            opened = self._open.get(name)
            if opened is not None and opened.move == ASKED:
                opened.move = FAILED

    def judged(self, row: KvMoveRow) -> None:
        """Record whether a copy was ever loaded from."""
        tally = self._of_move.get(row.order_id)
        if tally is not None and row.worth == USELESS:
            tally.bytes_useless += row.bytes

    def used(self, row: KvMoveRow, tokens: int) -> None:
        """Record that an engine loaded this many tokens from a copy."""
        tally = self._of_move.get(row.order_id)
        if tally is not None:
            tally.saved_tokens += tokens

    # -- inner

    def _advised(
        self,
        advisory: Advisory,
        known: KnownSession,
        pool: LivePool,
        before: OpenAdvisory | None,
        lead_s: float,
        now: float,
    ) -> OpenAdvisory | None:
        asked = InferenceRequest(
            "",
            tuple(known.keys[: known.tokens // pool.entry.block_tokens]),
            known.tokens,
            pool.entry.block_tokens,
            now,
            pool.entry.policy.ttft_slo_s,
            tenant_id=advisory.tenant_id,
            session_id=advisory.session_id,
        )
        advised = pool.driver.chain.advise(asked, known.engine_id, lead_s, now, self._orders.backlog())
        if advised is None:
            return None
        expires_s = advised.expires_s
        begun_s = now if before is None else before.at_s
        opened = OpenAdvisory(advisory, pool.entry.pool_id, advised.engine_id, begun_s, now + lead_s, expires_s)
        if before is not None and before.engine_id == opened.engine_id and before.move in (ASKED, CAME):
            # The same burst of typing: what moves, or has moved, stays as it is.
            return msgspec.structs.replace(before, advisory=advisory, expected_s=opened.expected_s, expires_s=expires_s)
        if before is not None and before.move == ASKED:
            self._orders.left_queue(_name(advisory.tenant_id, advisory.session_id))
        if advised.staging is not None and known.spurious < SPURIOUS_IN_A_ROW:
            self._stage(opened, advised.staging, pool, now)
        if opened.move != ASKED and known.spurious < SPURIOUS_IN_A_ROW:
            self._prefetch(opened)
        return opened

    def _prefetch(self, opened: OpenAdvisory) -> None:
        """Let the engine load what its own node holds, if the policy sets this and the source is trusted."""
        advisory, now = opened.advisory, self._clock()
        tenant, session, source = advisory.tenant_id, advisory.session_id, advisory.source
        pool, known = self._pools.get(opened.pool_id), self.sessions.get(tenant, session)
        if pool is None or known is None or not pool.entry.policy.engine_prefetch:
            return
        home = pool.loads.learned.homes.get(opened.engine_id)
        # A move's blocks are there, although the node's events may not have arrived yet.
        held = home is not None and (opened.move == CAME or self._orders.holds(home, known.keys))
        if not held or self.limits.trust(tenant, source, now).backs_off:
            return
        rank = self.limits.rank(tenant, source, advisory.priority, now)
        keys = tuple(known.keys[: known.tokens // pool.entry.block_tokens])
        name = _name(tenant, session)
        order = EnginePrefetchOrder(name, tenant, opened.pool_id, opened.engine_id, keys, rank, opened.expected_s)
        self.prefetches.ask(order)

    def _prefetched(self, order: EnginePrefetchOrder, outcome: KvOutcome) -> None:
        """Record what an engine has prefetched."""
        opened = self._open.get(order.name)
        if opened is not None and opened.engine_id == order.engine_id:
            opened.engine_blocks = outcome.loaded_blocks
            advisory = opened.advisory
            self.tally.source(opened.pool_id, advisory.tenant_id, advisory.source).engine_bytes += outcome.loaded_bytes

    def _stage(self, opened: OpenAdvisory, staging: Staging, pool: LivePool, now: float) -> None:
        """Request the move of blocks if the source is trusted and the move limits allow it."""
        advisory = opened.advisory
        tenant, source = advisory.tenant_id, advisory.source
        if not self.limits.may_move(tenant, source, now):
            return
        move = KvMove(
            ADVISORY,
            staging.source,
            staging.target,
            staging.keys[:MAX_BLOCKS],
            staging.move_s,
            self.limits.rank(tenant, source, advisory.priority, now),
            opened.expected_s,
        )
        name = _name(tenant, advisory.session_id)
        if self._orders.ask(move, opened.pool_id, pool.entry.block_tokens, now, name):
            _keep(self._moving, name, self.tally.source(opened.pool_id, tenant, source))
            opened.move, opened.held_by, opened.moved_to = ASKED, staging.source, staging.target

    def _arrived(self, request: InferenceRequest, decision: Decision) -> StoredAdvisory | None:
        """Record a session's request; return the advisory's effect on it."""
        now, session = self._clock(), (request.tenant_id, request.session_id)
        opened = self._open.pop(_name(*session), None)
        self.prefetches.cancel(_name(*session))
        if request.keys:
            engine_id, tokens = decision.engine_id, request.prompt_tokens
            self.sessions.note(*session, decision.pool_id, engine_id, request.keys, tokens, now)
        return self._followed(opened, decision.engine_id, now) if opened is not None else None

    def _followed(self, opened: OpenAdvisory, engine_id: str, now: float) -> StoredAdvisory:
        """Judge an advisory by the request that followed. A running move ends after its current part."""
        advisory, stored = opened.advisory, opened.stored(engine_id, now)
        self._count(advisory, opened.pool_id, stored.outcome)
        self._orders.left_queue(_name(advisory.tenant_id, advisory.session_id))
        if stored.outcome == USEFUL:
            self.limits.judged(advisory.tenant_id, advisory.source, True, now)
        lead_s, tenant = now - opened.at_s, advisory.tenant_id
        # Popped and put back: the tenant unused for longest is then the first to leave.
        known_s = self._leads.pop(tenant, LEAD_S)
        self._leads[tenant] = known_s + _LEAD_SHARE * (lead_s - known_s)
        if len(self._leads) > MAX_OPEN:
            self._leads.popitem(last=False)
        return stored

    def _end(self, name: str, outcome: str, now: float) -> None:
        """End an advisory that no request followed."""
        opened = self._open.pop(name)
        self.prefetches.cancel(name)
        tenant, session = opened.advisory.tenant_id, opened.advisory.session_id
        self._count(opened.advisory, opened.pool_id, outcome)
        pool = self._pools.get(opened.pool_id)
        if pool is not None:
            pool.driver.chain.withdraw(tenant, session)
        self._orders.left_queue(name)
        known = self.sessions.get(tenant, session)
        if outcome == SPURIOUS or (outcome == WITHDRAWN and opened.move == CAME):
            self.limits.judged(tenant, opened.advisory.source, False, now)
            if known is not None:
                known.spurious += 1

    def _lead_s(self, advisory: Advisory) -> float:
        said = advisory.expected_arrival_s
        return self._leads.get(advisory.tenant_id, LEAD_S) if said is None else said

    def _count(self, advisory: Advisory, pool_id: str, outcome: str) -> None:
        self.tally.count(pool_id, advisory.tenant_id, advisory.source, outcome)


def _name(tenant_id: str, session_id: str) -> str:
    """Return the name of a tenant's session in tables and moves. It never equals a request id."""
    # The length keeps tenant and session apart, whatever characters they have.
    return f"session {len(tenant_id)} {tenant_id} {session_id}"


def _keep(table: OrderedDict[str, _Kept], name: str, value: _Kept) -> None:
    table[name] = value
    table.move_to_end(name)
    if len(table) > _MAX_KEPT:
        table.popitem(last=False)
