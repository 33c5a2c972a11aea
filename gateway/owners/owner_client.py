"""One gateway's requests to a pool that another gateway owns: the owner decides, both account, this gateway relays."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import msgspec

from gateway.owners.owner_messages import (
    COMPLETED,
    FAILED,
    FIRST_TOKEN,
    HANDED_OVER,
    Afresh,
    Ask,
    OwnerAnswered,
    OwnerEpoch,
    OwnerNotice,
    Took,
    Withdraw,
    sent,
)
from routing.ledger.reservations import DECODING, WAITING
from routing.values.decision import ALONE, OTHER_KEYS, Decision, Dispatched, Rejected
from routing.values.inference_request import InferenceRequest
from routing.values.observation import Completed, FirstToken, HandedOver, Observation

if TYPE_CHECKING:
    from gateway.advisories.advisories import Advisories
    from gateway.base.metrics import GatewayMetrics
    from gateway.owners.ownership import Ownership
    from gateway.pool.live_pool import LivePool

ANSWER_S = 0.25
"""An owner that has not answered within this many seconds is not asked for a while."""
MAX_WAITING = 65_536
MAX_TOOK_KEYS = 262_144
"""Limit of block keys of running requests sent to a new owner. Beyond it, only lengths are sent."""

ANSWERED, QUEUED_WITHDRAWN, LATE, REJECTED, UNREACHABLE = "answered", "withdrawn", "late", "rejected", "unreachable"
"""Results of asks, as named in the metric."""


class OwnerContext(Protocol):
    """State that all pools of a gateway share (PoolOwners)."""

    clock: Callable[[], float]
    """Monotonic seconds."""

    def send(self, tag: str, message: Ask | Withdraw | OwnerNotice | Took | Afresh) -> bool:
        """Send to the gateway with this tag at the end of the loop step. Return False if there is no connection."""

    def name_of(self, tag: str) -> str:
        """Return the name of the gateway with this tag."""

    def has_same_keys(self, tag: str) -> bool:
        """Return whether the block keys of the gateway with this tag identify the same blocks as ours."""


class _Asked:
    __slots__ = ("acknowledged", "asked_s", "epoch", "future", "request_id")

    def __init__(
        self, request_id: str, epoch: OwnerEpoch, future: asyncio.Future[OwnerAnswered | None], now: float
    ) -> None:
        self.request_id = request_id
        self.epoch = epoch
        self.future = future
        self.asked_s = now
        self.acknowledged = False


class OwnerClient:
    """One pool's requests while another gateway may own it. `epoch` is the owner to ask; None: there is none.

    Mutable: the asks that wait for an answer, by number and in order.
    """

    def __init__(
        self,
        pool: LivePool,
        context: OwnerContext,
        ownership: Ownership,
        metrics: GatewayMetrics,
        advisories: Advisories,
    ) -> None:
        self.epoch: OwnerEpoch | None = None
        self._pool = pool
        self._context = context
        self._ownership = ownership
        self._metrics = metrics
        self._advisories = advisories
        self._waiting: dict[int, _Asked] = {}
        self._next_id = 0

    async def place(
        self, request: InferenceRequest, *, hold: bool, excluded: frozenset[str] = frozenset(), salted: bool = False
    ) -> Dispatched | Rejected:
        """Return the owner's decision, or our own router's decision without an owner. Cancellation withdraws the
        request.
        """
        epoch = self.epoch
        while epoch is not None:
            answer = await self._ask(epoch, request, hold, excluded, salted)
            if answer is not None:
                return self._taken(epoch, request, answer, salted)
            # An owner elected meanwhile is asked; the same one is not asked twice.
            epoch = self.epoch if self.epoch != epoch else None
        outcome = await self._pool.driver.place(request, hold=hold, excluded=excluded, salted=salted)
        if isinstance(outcome, Rejected):
            return outcome
        if self.epoch is not None:
            # The owner came while it waited here.
            moment = sent(request, time.monotonic())
            self._notify(Took(self._pool.entry.pool_id, self.epoch, moment, outcome.decision.engine_id, False, salted))
        return Dispatched(msgspec.structs.replace(outcome.decision, decided_by=ALONE), outcome.holders)

    def observe(self, observation: Observation) -> None:
        """Record an event of a request, here and at the owner."""
        self._pool.driver.observe(observation)
        epoch = self.epoch
        if epoch is not None:
            moment, cached = FAILED, None
            if isinstance(observation, Completed):
                moment, cached = COMPLETED, observation.cached_tokens
            elif isinstance(observation, FirstToken):
                moment = FIRST_TOKEN
            elif isinstance(observation, HandedOver):
                moment = HANDED_OVER
            self._notify(OwnerNotice(self._pool.entry.pool_id, epoch, observation.request_id, moment, cached))

    def follow(self, epoch: OwnerEpoch | None, own: Callable[[str], bool]) -> None:
        """Send asks to this owner, which first receives all our running requests. None: ask no owner.

        `own` returns by its id whether a request is this gateway's.
        """
        self.epoch = epoch
        if epoch is not None:
            self._notify(Afresh(self._pool.entry.pool_id, epoch))
            keys_left = MAX_TOOK_KEYS
            now = time.monotonic()
            for reservation in list(self._pool.router.reservations):
                request = reservation.request
                # One that still waits here is reported by `place` once it has an engine.
                if reservation.phase is WAITING or not own(request.request_id):
                    continue
                engine_id = self._pool.router.view.roster.engine_ids[reservation.target]
                keys_left -= len(request.keys)
                reported = request if keys_left >= 0 else msgspec.structs.replace(request, keys=())
                self._notify(
                    Took(self._pool.entry.pool_id, epoch, sent(reported, now), engine_id, reservation.phase is DECODING)
                )
        for asked in list(self._waiting.values()):
            if asked.epoch != epoch:
                self._give_up(asked, REJECTED)

    def answered(self, answer: OwnerAnswered) -> None:
        """Apply the owner's answer. The answer to an ended ask is ignored, because the ask was withdrawn."""
        asked = self._waiting.get(answer.ask_id)
        if asked is None or asked.future.done():
            return
        if answer.epoch != asked.epoch:
            self._give_up(asked, REJECTED)
        elif answer.decision is None and answer.rejected is None:
            asked.acknowledged = True
        else:
            self._count(ANSWERED)
            asked.future.set_result(answer)

    def sweep(self, now: float) -> None:
        """Abandon asks without a timely answer."""
        # An acknowledged one is in the owner's queue, and may wait there for long.
        overdue = [item for item in self._waiting.values() if not item.acknowledged and now - item.asked_s >= ANSWER_S]
        for asked in overdue:
            if not asked.future.done():
                self._give_up(asked, LATE)
        if overdue:
            self._ownership.late(self._context.clock())

    async def _ask(
        self, epoch: OwnerEpoch, request: InferenceRequest, hold: bool, excluded: frozenset[str], salted: bool
    ) -> OwnerAnswered | None:
        """Return the owner's answer. None: it gave none and was notified that the request no longer needs it."""
        if len(self._waiting) >= MAX_WAITING:
            return None
        self._next_id += 1
        ask_id, pool_id = self._next_id, self._pool.entry.pool_id
        future: asyncio.Future[OwnerAnswered | None] = asyncio.get_running_loop().create_future()
        asked = _Asked(request.request_id, epoch, future, self._context.clock())
        # The owner may reach engines that this gateway, which has to relay the answer, does not.
        out = tuple(sorted(excluded | self._pool.unreachable_here))
        ask = Ask(ask_id, pool_id, epoch, sent(request, time.monotonic()), hold, out, salted)
        if not self._context.send(epoch.owner, ask):
            self._count(UNREACHABLE)
            self._ownership.late(self._context.clock())
            return None
        self._waiting[ask_id] = asked
        answer: OwnerAnswered | None = None
        try:
            answer = await future
            return answer
        except asyncio.CancelledError:
            self._count(QUEUED_WITHDRAWN)
            raise
        finally:
            del self._waiting[ask_id]
            if answer is None:
                self._context.send(epoch.owner, Withdraw(ask_id, pool_id, epoch, request.request_id))

    def _taken(
        self, epoch: OwnerEpoch, request: InferenceRequest, answer: OwnerAnswered, salted: bool
    ) -> Dispatched | Rejected:
        """Account for the owner's decision here too; return it on this machine's clock."""
        if answer.rejected is not None:
            return answer.rejected
        decision = answer.decision
        if decision is None:
            raise RuntimeError("an answer without a decision has ended a wait")
        if answer.advisory is not None:
            self._advisories.outcome(request.request_id, answer.advisory)
        incarnation = self._pool.driver.adopt(request, decision.engine_id, salted)
        return Dispatched(self._as_ours(decision, epoch, answer.age_s, incarnation), answer.holders)

    def _as_ours(self, decision: Decision, epoch: OwnerEpoch, age_s: float, incarnation: int | None) -> Decision:
        decided_s = time.monotonic() - age_s
        engines, pair = self._pool.engines, decision.pair
        if incarnation is None:
            incarnation = engines[decision.engine_id].incarnation if decision.engine_id in engines else 0
        if pair is not None and pair.engine_id in engines:
            pair = msgspec.structs.replace(pair, incarnation=engines[pair.engine_id].incarnation)
        migrated_s = decision.migrated_s and decided_s + decision.migrated_s - decision.decided_s
        return msgspec.structs.replace(
            decision,
            decided_s=decided_s,
            incarnation=incarnation,
            migrated_s=migrated_s,
            pair=pair,
            decided_by=f"{self._context.name_of(epoch.owner)}, epoch {epoch.number}"
            + ("" if self._context.has_same_keys(epoch.owner) else OTHER_KEYS),
        )

    def _give_up(self, asked: _Asked, outcome: str) -> None:
        self._count(outcome)
        if not asked.future.done():
            asked.future.set_result(None)

    def _notify(self, message: OwnerNotice | Took | Afresh) -> None:
        if self.epoch is not None:
            self._context.send(self.epoch.owner, message)

    def _count(self, outcome: str) -> None:
        self._metrics.owner_asks.count((self._pool.entry.pool_id, outcome))
