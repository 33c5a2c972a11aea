"""Second link of the chain: the gateway that owns the pool's queue decides; the others ask it and relay.

Each gateway accounts for its own requests in its own router, so that it can decide alone as soon as the owner is away.
Messages to other gateways collect in `outbox`; the driver sends them after each call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import msgspec
from typing_extensions import override

from routing.advisories.advised_sessions import StoredAdvisory
from routing.chain.decider import ChainLink, Decider
from routing.chain.owner_messages import (
    ANSWERS_LOST,
    Afresh,
    Ask,
    OwnerAnswered,
    OwnerEpoch,
    OwnerMessage,
    OwnerNotice,
    Took,
    Withdraw,
    notice_of,
    received,
    sent,
)
from routing.chain.ownership import ALONE as DECIDES_ALONE
from routing.chain.ownership import ASKS, SILENT_S, Ownership
from routing.ledger.reservations import DECODING, WAITING
from routing.router import Router
from routing.values.decision import (
    ALONE,
    CENTRAL,
    OTHER_KEYS,
    ChainOutcome,
    Choice,
    Decision,
    Dispatched,
    Queued,
    Rejected,
    id_of,
)
from routing.values.inference_request import InferenceRequest
from routing.values.observation import Completed, Failed, FirstToken, Observation

ANSWER_S = 0.25
"""An owner that has not answered within this many seconds is not asked for a while."""
MAX_WAITING = 65_536
MAX_TOOK_KEYS = 262_144
"""Limit of block keys of running requests sent to a new owner. Beyond it, only lengths are sent."""

ANSWERED, WITHDRAWN, LATE, REJECTED, UNREACHABLE = "answered", "withdrawn", "late", "rejected", "unreachable"
"""Results of asks, as named in the metric."""


class AccountingDecider(Decider, Protocol):
    """The link after this one: a router that also accounts for requests that other gateways have decided on."""

    def adopt(self, request: InferenceRequest, engine_id: str, now: float) -> Dispatched | None:
        """Account for the request; return None if the engine accepts no work here or the request is known."""


class OwnerPeers(Protocol):
    """The other gateways of the region. `tag` identifies one."""

    def session(self, tag: str) -> object | None:
        """Return the connection to the gateway, another one after each loss. None: messages do not reach it."""

    def name_of(self, tag: str) -> str:
        """Return the gateway's name."""

    def has_same_keys(self, tag: str) -> bool:
        """Return whether the gateway's block keys identify the same blocks as ours."""

    def unreachable_here(self) -> frozenset[str]:
        """Return the engines that only this gateway cannot reach."""

    def count(self, result: str) -> None:
        """Count one result of an ask."""

    def advisory_followed(self, request: InferenceRequest, decision: Decision) -> StoredAdvisory | None:
        """Return the effect of the session's advisory on a peer's request that this gateway decided on."""

    def take_advisory(self, request_id: str, advisory: StoredAdvisory) -> None:
        """Record the effect of an advisory on our request, which the owner decided on."""


class _Asked(msgspec.Struct, gc=False):
    """One of our requests that the owner decides on. Mutable: whether the owner has queued it."""

    request: InferenceRequest
    epoch: OwnerEpoch
    hold: bool
    excluded: frozenset[str]
    since_s: float | None = None
    """The first sweep that met it unanswered."""
    acknowledged: bool = False


class OwnerDecider(ChainLink[AccountingDecider]):
    """One pool's link to its owner, which may be this gateway.

    Mutable: `epoch` (the owner to ask; None: there is none) and the connection to it, the asks that wait for an answer,
    our requests that wait here, the gateway of each peer's request, the peers' requests that wait here, and the
    connections to peers that asked.
    """

    def __init__(self, router: Router, chain: AccountingDecider, ownership: Ownership, peers: OwnerPeers) -> None:
        super().__init__(chain)
        self.epoch: OwnerEpoch | None = None
        self.outbox: list[tuple[str, OwnerMessage]] = []
        self.ownership = ownership
        self._router, self._peers = router, peers
        self._pool_id = router.pool_id
        self._asked: dict[int, _Asked] = {}
        self._ask_of: dict[str, int] = {}
        self._next_id = 0
        self._unreached = False
        self._session: object | None = None
        self._here: dict[str, InferenceRequest] = {}
        self._alone: set[str] = set()
        self._peer_of: dict[str, str] = {}
        self._queued: dict[str, tuple[Ask, OwnerEpoch]] = {}
        self._sessions: dict[str, object | None] = {}

    # -- our own requests

    @override
    def place(
        self, request: InferenceRequest, now: float, *, hold: bool = True, excluded: frozenset[str] = frozenset()
    ) -> ChainOutcome:
        """Ask the owner, or decide without one. An asked request is Queued, with or without `hold`.

        Raise ValueError for the id of a request that has not ended.
        """
        name = request.request_id
        if name in self._ask_of or name in self._here or self._router.reservations.get(name) is not None:
            raise ValueError(f"request {name} is already here; ids are used once")
        if self._asks(_Asked(request, self.epoch or OwnerEpoch(), hold, excluded), now):
            choice = Choice(CENTRAL, "")
            router = self._router
            return Queued(Decision.of(request, choice, now, self._pool_id, 0, router.policy, router.policy_version))
        return self._decide_here(request, now, hold, excluded)

    def _asks(self, asked: _Asked, now: float) -> bool:
        """Send an ask; return False if there is no owner to ask."""
        epoch, peers = self.epoch, self._peers
        if epoch is None or len(self._asked) >= MAX_WAITING:
            return False
        if peers.session(epoch.owner) is None:
            peers.count(UNREACHABLE)
            self._unreached = True
            return False
        self._next_id += 1
        asked.epoch = epoch
        self._asked[self._next_id] = asked
        self._ask_of[asked.request.request_id] = self._next_id
        # The owner may reach engines that this gateway, which has to relay the answer, does not.
        out = tuple(sorted(asked.excluded | peers.unreachable_here()))
        self._send(epoch.owner, Ask(self._next_id, self._pool_id, epoch, sent(asked.request, now), asked.hold, out))
        return True

    def _decide_here(self, request: InferenceRequest, now: float, hold: bool, excluded: frozenset[str]) -> ChainOutcome:
        name = request.request_id
        outcome = self._chain.place(request, now, hold=hold, excluded=excluded)
        if self.ownership.role in (ASKS, DECIDES_ALONE):
            self._alone.add(name)
        self._here[name] = request
        return self._decided_here(outcome, now)

    def _decided_here(self, outcome: ChainOutcome, now: float) -> ChainOutcome:
        """Return the outcome of one of our requests that this gateway decides on; a new owner learns of it."""
        if isinstance(outcome, Queued):
            return outcome
        name = id_of(outcome)
        request, alone = self._here.pop(name), name in self._alone
        self._alone.discard(name)
        if not isinstance(outcome, Dispatched):
            return outcome
        if self.epoch is not None:
            # The owner came while it waited here.
            self._notify(Took(self._pool_id, self.epoch, sent(request, now), outcome.decision.engine_id, False))
        if not alone:
            return outcome
        return Dispatched(msgspec.structs.replace(outcome.decision, decided_by=ALONE), outcome.holders)

    @override
    def observe(self, observation: Observation, now: float) -> list[ChainOutcome]:
        """Record an event of one of our requests, here and at the owner."""
        name = observation.request_id
        number = self._ask_of.get(name)
        if number is not None:
            # It has no engine yet, so that only its end can be observed.
            self._give_up(number, WITHDRAWN)
            return []
        if isinstance(observation, Completed | Failed):
            self._here.pop(name, None)
            self._alone.discard(name)
        outcomes = self.followed(self._chain.observe(observation, now), now)
        if self.epoch is not None:
            self._notify(notice_of(observation, self._pool_id, self.epoch))
        return outcomes

    @override
    def followed(self, outcomes: Iterable[ChainOutcome], now: float) -> list[ChainOutcome]:
        """Return the outcomes of our own requests; send those of peers."""
        ours: list[ChainOutcome] = []
        for outcome in outcomes:
            name = id_of(outcome)
            if name in self._queued and not isinstance(outcome, Queued):
                ask, epoch = self._queued.pop(name)
                ours += self._answer(self._peer_of.pop(name), ask, epoch, outcome, now)
            elif name in self._here:
                ours.append(self._decided_here(outcome, now))
            else:
                ours.append(outcome)
        return ours

    # -- the owner

    def follow(self, epoch: OwnerEpoch | None, own: Callable[[str], bool], now: float) -> list[ChainOutcome]:
        """Send asks to this owner, which first receives all our running requests. None: ask no owner.

        `own` returns by its id whether a request is this gateway's. Return the outcomes of requests that the earlier
        owner did not answer.
        """
        self.epoch = epoch
        if epoch is not None:
            self._session = self._peers.session(epoch.owner)
            self._notify(Afresh(self._pool_id, epoch))
            keys_left = MAX_TOOK_KEYS
            for reservation in list(self._router.reservations):
                request = reservation.request
                # One that still waits here is reported once it has an engine.
                if reservation.phase is WAITING or not own(request.request_id):
                    continue
                engine_id = self._router.view.roster.engine_ids[reservation.target]
                keys_left -= len(request.keys)
                reported = request if keys_left >= 0 else msgspec.structs.replace(request, keys=())
                decoding = reservation.phase is DECODING
                self._notify(Took(self._pool_id, epoch, sent(reported, now), engine_id, decoding))
        left = [number for number, asked in self._asked.items() if asked.epoch != epoch]
        return [outcome for number in left for outcome in self._again(number, REJECTED, now)]

    def answered(self, answer: OwnerAnswered, now: float) -> list[ChainOutcome]:
        """Apply the owner's answer. The answer to an ended ask is ignored, because the ask was withdrawn."""
        asked = self._asked.get(answer.ask_id)
        if asked is None:
            self._unreached |= answer.ask_id == ANSWERS_LOST
            return []
        if answer.epoch != asked.epoch:
            return self._again(answer.ask_id, REJECTED, now)
        if answer.decision is None and answer.rejected is None:
            asked.acknowledged = True
            return []
        self._end_ask(answer.ask_id, ANSWERED)
        return [self._taken(asked, answer, now)]

    def sweep(self, now: float, lease_s: float) -> list[ChainOutcome]:
        """Decide on requests that the owner has not answered in time. `lease_s` is the time of the ownership's clock.

        Call it several times within ANSWER_S, and set the role afterwards: an owner that was late or lost messages is
        not asked for a while.
        """
        for peer, session in self._sessions.items():
            current = self._peers.session(peer)
            if current is not None and current is not session:
                self._sessions[peer] = current
                self._send(peer, OwnerAnswered(ANSWERS_LOST, self._pool_id, OwnerEpoch()))
        if self.epoch is not None and self._peers.session(self.epoch.owner) is not self._session:
            self._unreached = True
        overdue = []
        for number, asked in self._asked.items():
            # An acknowledged one is in the owner's queue, and may wait there for long.
            if asked.acknowledged:
                continue
            asked.since_s = lease_s if asked.since_s is None else asked.since_s
            if lease_s - asked.since_s >= ANSWER_S:
                overdue.append(number)
        if overdue or self._unreached:
            reached = self.epoch is not None and self._peers.session(self.epoch.owner) is not None
            # Over a new connection, the owner can be asked again once it has processed what came over the old one. One
            # that answers at all does so within ANSWER_S.
            self.ownership.late(lease_s, ANSWER_S if reached and not overdue else SILENT_S)
            # It is asked again, and learns what runs, once it answers in time.
            self.epoch, self._unreached = None, False
        return [outcome for number in overdue for outcome in self._again(number, LATE, now)]

    def _again(self, number: int, result: str, now: float) -> list[ChainOutcome]:
        """Decide without the owner that was asked: ask one elected meanwhile, or decide here."""
        asked = self._asked[number]
        self._give_up(number, result)
        if self.epoch != asked.epoch:
            asked.since_s, asked.acknowledged = None, False
            if self._asks(asked, now):
                return []
        outcome = self._decide_here(asked.request, now, asked.hold, asked.excluded)
        return [] if isinstance(outcome, Queued) else [outcome]

    def _give_up(self, number: int, result: str) -> None:
        """End an ask, and notify the owner that the request no longer needs it."""
        asked = self._end_ask(number, result)
        self._send(asked.epoch.owner, Withdraw(number, self._pool_id, asked.epoch, asked.request.request_id))

    def _end_ask(self, number: int, result: str) -> _Asked:
        self._peers.count(result)
        asked = self._asked.pop(number)
        del self._ask_of[asked.request.request_id]
        return asked

    def _taken(self, asked: _Asked, answer: OwnerAnswered, now: float) -> ChainOutcome:
        """Account for the owner's decision here too; return it on this machine's clock."""
        request, decision = asked.request, answer.decision
        if decision is None or answer.rejected is not None:
            return answer.rejected or Rejected(request.request_id, "", 1.0)
        if answer.advisory is not None:
            self._peers.take_advisory(request.request_id, answer.advisory)
        adopted = self._chain.adopt(request, decision.engine_id, now)
        decided_s, pair, incarnations = now - answer.age_s, decision.pair, self._router.fleet.incarnation
        if pair is not None:
            pair = msgspec.structs.replace(pair, incarnation=incarnations(pair.engine_id) or pair.incarnation)
        owner = asked.epoch.owner
        return Dispatched(
            msgspec.structs.replace(
                decision,
                decided_s=decided_s,
                incarnation=incarnations(decision.engine_id) if adopted is None else adopted.decision.incarnation,
                migrated_s=decision.migrated_s and decided_s + decision.migrated_s - decision.decided_s,
                pair=pair,
                decided_by=f"{self._peers.name_of(owner)}, epoch {asked.epoch.number}"
                + ("" if self._peers.has_same_keys(owner) else OTHER_KEYS),
            ),
            answer.holders,
        )

    # -- peers' requests, while this gateway is the owner

    def receive(self, peer: str, message: OwnerMessage, now: float, *, same_keys: bool) -> list[ChainOutcome]:
        """Process a message under our own epoch; return outcomes of our own requests that follow."""
        if isinstance(message, Ask):
            return self._ask(peer, message, now, same_keys=same_keys)
        if isinstance(message, Took):
            return self._adopt(peer, message, received(message.request, now, same_keys=same_keys), now)
        if isinstance(message, Afresh):
            return self.forget(now, frozenset((peer,)))
        if not isinstance(message, OwnerNotice | Withdraw) or self._peer_of.get(message.request_id) != peer:
            return []
        if isinstance(message, Withdraw):
            return self._end(message.request_id, now)
        observation = message.observation
        if isinstance(observation, Completed | Failed):
            del self._peer_of[message.request_id]
            # It still waits here if its withdrawal was lost.
            self._queued.pop(message.request_id, None)
        return self.followed(self._chain.observe(observation, now), now)

    def reject(self, peer: str, ask: Ask, seen: OwnerEpoch) -> None:
        """Report that this gateway does not decide under this epoch, and send the epoch that it knows."""
        self._send(peer, OwnerAnswered(ask.ask_id, ask.pool_id, seen))

    def forget(self, now: float, peers: frozenset[str] | None = None) -> list[ChainOutcome]:
        """Release the requests of these gateways, which have ended. None: of all, because they have a new owner."""
        self._sessions = {} if peers is None else {p: s for p, s in self._sessions.items() if p not in peers}
        names = [name for name, peer in self._peer_of.items() if peers is None or peer in peers]
        return [outcome for name in names for outcome in self._end(name, now)]

    def _ask(self, peer: str, ask: Ask, now: float, *, same_keys: bool) -> list[ChainOutcome]:
        request, epoch = received(ask.request, now, same_keys=same_keys), self.ownership.seen
        self._sessions.setdefault(peer, self._peers.session(peer))
        try:
            outcome = self._chain.place(request, now, hold=ask.hold, excluded=frozenset(ask.excluded))
        except ValueError:
            # The id is in use here. A peer that asks twice decides alone the second time.
            self.reject(peer, ask, OwnerEpoch())
            return []
        if not isinstance(outcome, Queued):
            return self._answer(peer, ask, epoch, outcome, now)
        self._peer_of[request.request_id] = peer
        self._queued[request.request_id] = (ask, epoch)
        self._send(peer, OwnerAnswered(ask.ask_id, ask.pool_id, epoch))
        return []

    def _adopt(self, peer: str, took: Took, request: InferenceRequest, now: float) -> list[ChainOutcome]:
        if self._chain.adopt(request, took.engine_id, now) is None:
            return []
        self._peer_of[request.request_id] = peer
        return self.followed(self._chain.observe(FirstToken(request.request_id), now), now) if took.decoding else []

    def _answer(self, peer: str, ask: Ask, epoch: OwnerEpoch, outcome: ChainOutcome, now: float) -> list[ChainOutcome]:
        if isinstance(outcome, Rejected):
            self._send(peer, OwnerAnswered(ask.ask_id, ask.pool_id, epoch, rejected=outcome))
            return []
        if not isinstance(outcome, Dispatched):
            return []
        self._peer_of[ask.request.request_id] = peer
        if self._peers.session(peer) is None:
            # Without a connection, the peer never relays it, so the engine is released.
            return self._end(ask.request.request_id, now)
        decision = outcome.decision
        advisory = self._peers.advisory_followed(ask.request, decision)
        age_s = now - decision.decided_s
        holders = outcome.holders
        self._send(peer, OwnerAnswered(ask.ask_id, ask.pool_id, epoch, decision, age_s, None, advisory, holders))
        return []

    def _end(self, name: str, now: float) -> list[ChainOutcome]:
        self._peer_of.pop(name, None)
        self._queued.pop(name, None)
        return self.followed(self._chain.observe(Failed(name), now), now)

    def _notify(self, message: OwnerMessage) -> None:
        if self.epoch is not None:
            self._send(self.epoch.owner, message)

    def _send(self, tag: str, message: OwnerMessage) -> None:
        self.outbox.append((tag, message))

    def take_messages(self) -> Sequence[tuple[str, OwnerMessage]]:
        """Return the messages to send, each with the tag of its receiver, and forget them."""
        messages, self.outbox = self.outbox, []
        return messages

    def __len__(self) -> int:
        """Return the number of peers' requests."""
        return len(self._peer_of)
