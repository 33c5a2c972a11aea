"""The owner's side of a shared pool: decides, queues, and accounts for other gateways' requests like its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from gateway.owners.owner_messages import (
    COMPLETED,
    FAILED,
    FIRST_TOKEN,
    HANDED_OVER,
    Ask,
    OwnerAnswered,
    OwnerEpoch,
    OwnerNotice,
    Took,
    Withdraw,
    received,
)
from routing.values.decision import Dispatched, Rejected
from routing.values.observation import Completed, Failed, FirstToken, HandedOver, Observation

if TYPE_CHECKING:
    from gateway.advisories.advisories import Advisories
    from gateway.pool.live_pool import LivePool


class OwnerServer:
    """Serves asks for one pool. Mutable: the gateway of each request id, and the requests that wait for an engine."""

    def __init__(self, pool: LivePool, send: Callable[[str, OwnerAnswered], bool], advisories: Advisories) -> None:
        self._pool = pool
        self._send = send
        self._advisories = advisories
        self._of: dict[str, str] = {}
        """Request id → tag of the gateway that relays it."""
        self._queued: dict[str, asyncio.Future[Dispatched | Rejected]] = {}

    def __len__(self) -> int:
        return len(self._of)

    def ask(self, peer: str, ask: Ask, epoch: OwnerEpoch, *, same_keys: bool) -> None:
        """Decide on a peer's request. The answer is sent once the request has an engine."""
        now = time.monotonic()
        request = received(ask.request, now, same_keys=same_keys)
        name = request.request_id
        try:
            outcome = self._pool.driver.begin(
                request, hold=ask.hold, excluded=frozenset(ask.excluded), salted=ask.salted
            )
        except ValueError:
            # Its id is under way here; a peer that asks twice decides the second time alone.
            self.reject(peer, ask, OwnerEpoch())
            return
        if not isinstance(outcome, asyncio.Future):
            self._answer(peer, ask, epoch, outcome)
            return
        self._of[name] = peer
        self._queued[name] = outcome
        self._send(peer, OwnerAnswered(ask.ask_id, ask.pool_id, epoch))

        def dispatched(done: asyncio.Future[Dispatched | Rejected]) -> None:
            # Otherwise it was withdrawn, and its id may wait a second time.
            if self._queued.get(name) is done:
                del self._queued[name], self._of[name]
                if not done.cancelled():
                    self._answer(peer, ask, epoch, done.result())

        outcome.add_done_callback(dispatched)

    def reject(self, peer: str, ask: Ask, seen: OwnerEpoch) -> None:
        """Report that this gateway does not decide under this epoch, and send the epoch that it knows."""
        self._send(peer, OwnerAnswered(ask.ask_id, ask.pool_id, seen))

    def _answer(self, peer: str, ask: Ask, epoch: OwnerEpoch, outcome: Dispatched | Rejected) -> None:
        if isinstance(outcome, Rejected):
            self._send(peer, OwnerAnswered(ask.ask_id, ask.pool_id, epoch, rejected=outcome))
            return
        name = ask.request.request_id
        self._of[name] = peer
        age_s = time.monotonic() - outcome.decision.decided_s
        advisory = self._advisories.decided(ask.request, outcome.decision)
        answer = OwnerAnswered(ask.ask_id, ask.pool_id, epoch, outcome.decision, age_s, None, advisory, outcome.holders)
        if not self._send(peer, answer):
            # Without a connection, the peer never relays it, so the engine is released.
            self._end(name)

    def withdraw(self, peer: str, message: Withdraw) -> None:
        """Release the engine of a request that its gateway no longer needs."""
        if self._of.get(message.request_id) == peer:
            self._end(message.request_id)

    def noticed(self, peer: str, message: OwnerNotice) -> None:
        """Record an event of a peer's request."""
        name = message.request_id
        if self._of.get(name) != peer:
            return
        if message.moment in (COMPLETED, FAILED):
            del self._of[name]
        self._pool.driver.observe(_OBSERVATIONS[message.moment](message))

    def took(self, peer: str, message: Took, *, same_keys: bool) -> None:
        """Account for a request that a peer has given to an engine without us."""
        request = received(message.request, time.monotonic(), same_keys=same_keys)
        adopted = self._pool.driver.adopt(request, message.engine_id, message.salted, decoding=message.decoding)
        if adopted is not None:
            self._of[request.request_id] = peer

    def forget(self, peers: frozenset[str] | None = None) -> None:
        """Release the requests of these gateways, which have ended. None: of all gateways, because they have a new
        owner.
        """
        for name in [name for name, peer in self._of.items() if peers is None or peer in peers]:
            self._end(name)

    def _end(self, name: str) -> None:
        self._of.pop(name, None)
        queued = self._queued.pop(name, None)
        if queued is not None and not queued.done():
            queued.cancel()
        else:
            self._pool.driver.observe(Failed(name))


_OBSERVATIONS: dict[int, Callable[[OwnerNotice], Observation]] = {
    FIRST_TOKEN: lambda notice: FirstToken(notice.request_id),
    HANDED_OVER: lambda notice: HandedOver(notice.request_id),
    COMPLETED: lambda notice: Completed(notice.request_id, notice.cached_tokens),
    FAILED: lambda notice: Failed(notice.request_id),
}
