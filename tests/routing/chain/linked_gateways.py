"""Gateways of one pool, joined by links whose messages a test delivers by hand."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence

import msgspec

from routing.advisories.advised_sessions import StoredAdvisory
from routing.chain.owner_decider import OwnerDecider
from routing.chain.owner_messages import Ask, OwnerAnswered, OwnerEpoch, OwnerMessage
from routing.chain.ownership import ASKS, OWNER, Around, Ownership
from routing.router import Router
from routing.values.decision import ChainOutcome, Decision, Dispatched, Queued, Rejected, id_of
from routing.values.inference_request import InferenceRequest
from routing.values.observation import Completed, Failed, FirstToken, Observation
from tests.routing.pools import pool, request

BLOCKS = 20
"""Blocks of a prompt that fills an engine."""


class LinkedGateway:
    """One gateway: it drives its link as RouterDriver and PoolOwners do."""

    def __init__(self, tag: str, router: Router, group: LinkedGateways) -> None:
        self.tag, self.router, self._group = tag, router, group
        self.link = OwnerDecider(router, router, Ownership(tag, 0.0), self)
        self.waiting: set[str] = set()
        self.running: dict[str, Decision] = {}
        self.rejected: list[Rejected] = []
        self.results: Counter[str] = Counter()
        self.unreachable: frozenset[str] = frozenset()
        self.other_keys: frozenset[str] = frozenset()
        """Tags of gateways with another secret."""
        self.advisory: StoredAdvisory | None = None
        self.advised: dict[str, StoredAdvisory] = {}
        self._gone: frozenset[str] = frozenset()

    # -- the other gateways

    def connected(self, tag: str) -> bool:
        return (self.tag, tag) not in self._group.cut and tag not in self._group.dead

    def session(self, tag: str) -> object | None:
        return self._group.sessions[self.tag, tag] if self.connected(tag) else None

    def name_of(self, tag: str) -> str:
        return f"gateway {tag}"

    def has_same_keys(self, tag: str) -> bool:
        return tag not in self.other_keys

    def unreachable_here(self) -> frozenset[str]:
        return self.unreachable

    def count(self, result: str) -> None:
        self.results[result] += 1

    def advisory_followed(self, request: InferenceRequest, decision: Decision) -> StoredAdvisory | None:
        return self.advisory

    def take_advisory(self, request_id: str, advisory: StoredAdvisory) -> None:
        self.advised[request_id] = advisory

    # -- the driver

    def place(self, asked: InferenceRequest, *, hold: bool = True, excluded: Iterable[str] = ()) -> ChainOutcome:
        outcome = self.link.place(asked, self._group.now, hold=hold, excluded=frozenset(excluded))
        self.waiting.add(asked.request_id)
        self.apply([outcome])
        return outcome

    def observe(self, observation: Observation) -> None:
        if isinstance(observation, Completed | Failed):
            self.running.pop(observation.request_id, None)
            self.waiting.discard(observation.request_id)
        self.apply(self.link.observe(observation, self._group.now))

    def first_token(self, name: str) -> None:
        self.observe(FirstToken(name))

    def complete(self, name: str) -> None:
        self.observe(Completed(name, 0))

    def apply(self, outcomes: Sequence[ChainOutcome]) -> None:
        """Apply outcomes, then send the messages. A dispatch of a request that does not wait is released."""
        pending = deque(outcomes)
        while pending:
            outcome = pending.popleft()
            name = id_of(outcome)
            if isinstance(outcome, Queued):
                continue
            if isinstance(outcome, Rejected):
                assert name in self.waiting, outcome
                self.waiting.remove(name)
                self.rejected.append(outcome)
            elif name in self.waiting:
                assert isinstance(outcome, Dispatched)
                self.waiting.remove(name)
                self.running[name] = outcome.decision
            else:
                assert name not in self.running, f"{name} is dispatched twice"
                pending += self.link.observe(Failed(name), self._group.now)
        for tag, message in self.link.take_messages():
            self._group.send(self.tag, tag, message)

    # -- ownership

    @property
    def ownership(self) -> Ownership:
        return self.link.ownership

    def around(self) -> Around:
        peers = frozenset(self._group.gateways) - {self.tag}
        gone = peers & self._group.dead
        return Around(peers, frozenset(filter(self.connected, peers)), gone, frozenset(), True)

    def settle(self) -> None:
        now, before = self._group.now, self.ownership.role
        changed = self.ownership.settle(self.around(), now)
        epoch = self.ownership.seen if self.ownership.role == ASKS else None
        if changed or epoch != self.link.epoch:
            if before == OWNER:
                self.apply(self.link.forget(now))
            self.apply(self.link.follow(epoch, lambda name: name.endswith(self.tag), now))

    def tick(self) -> None:
        now = self._group.now
        gone = self.around().gone
        if gone != self._gone:
            self._gone = gone
            self.apply(self.link.forget(now, gone))
        self.apply(self.link.sweep(now, now))
        if self._group.holder == self.tag:
            self.ownership.renewed(now)
        elif self.ownership.seen.owner == self.tag:
            self.ownership.lost(self._group.holder, now)
        self.settle()
        self.apply(self.link.tick(now))
        if self.ownership.owns(now):
            for tag in self.around().connected:
                self._group.send(self.tag, tag, self.ownership.seen)

    def receive(self, sender: str, message: OwnerMessage | OwnerEpoch) -> None:
        now, ownership = self._group.now, self.ownership
        if isinstance(message, OwnerEpoch):
            self._follow(message, sender)
        elif isinstance(message, OwnerAnswered):
            if message.epoch.number:
                self._follow(message.epoch, sender)
            self.apply(self.link.answered(message, now))
        elif ownership.owns(now) and message.epoch == ownership.seen:
            same_keys = self.has_same_keys(sender)
            self.apply(self.link.receive(sender, message, now, same_keys=same_keys))
        elif isinstance(message, Ask):
            self.link.reject(sender, message, ownership.seen)
            self.apply([])

    def _follow(self, epoch: OwnerEpoch, sender: str) -> None:
        if not self.ownership.receive(epoch, sender, self._group.now):
            self._group.send(self.tag, sender, self.ownership.seen)
        self.settle()

    def check(self) -> None:
        """Raise AssertionError if the router is inconsistent."""
        self.router.check()

    def check_empty(self) -> None:
        """Raise AssertionError if the gateway still has a request."""
        link, router = self.link, self.router
        assert not self.waiting
        assert not (link._asked or link._ask_of or link._here or link._alone or link._peer_of or link._queued)
        assert not (router.reservations.by_id or len(router.waiting) or len(router.deferred))


class LinkedGateways:
    """All gateways. Mutable: the time, the lease's holder, messages by (sender, receiver), and cut connections."""

    def __init__(self, routers: dict[str, Router]) -> None:
        self.now, self.holder = 0.0, ""
        self.cut: set[tuple[str, str]] = set()
        self.dead: frozenset[str] = frozenset()
        self.under_way: dict[tuple[str, str], deque[OwnerMessage | OwnerEpoch]] = defaultdict(deque)
        self.sessions: dict[tuple[str, str], object] = defaultdict(object)
        self.answers: Counter[tuple[str, int]] = Counter()
        """Final answers by asker and ask."""
        self.gateways = {tag: LinkedGateway(tag, router, self) for tag, router in routers.items()}

    def __getitem__(self, tag: str) -> LinkedGateway:
        return self.gateways[tag]

    def send(self, sender: str, receiver: str, message: OwnerMessage | OwnerEpoch) -> None:
        """Send a message; it is lost without a connection."""
        if isinstance(message, OwnerAnswered) and (message.decision or message.rejected):
            self.answers[receiver, message.ask_id] += 1
            assert self.answers[receiver, message.ask_id] == 1, message
        if self[sender].connected(receiver):
            self.under_way[sender, receiver].append(message)

    def deliver(self, sender: str, receiver: str) -> None:
        """Deliver the oldest message between two gateways."""
        self[receiver].receive(sender, self.under_way[sender, receiver].popleft())

    def deliver_all(self) -> None:
        """Deliver all messages, and those that follow."""
        while pairs := [pair for pair, messages in sorted(self.under_way.items()) if messages]:
            for pair in pairs:
                self.deliver(*pair)

    def messages(self, sender: str, receiver: str) -> list[str]:
        """Return the kinds of the messages in transit."""
        return [type(message).__name__ for message in self.under_way[sender, receiver]]

    def cut_off(self, sender: str, receiver: str) -> None:
        """End the connection of one gateway to another. Messages in transit are lost."""
        self.cut.add((sender, receiver))
        self.under_way[sender, receiver].clear()
        self.sessions.pop((sender, receiver), None)

    def elect(self, tag: str) -> None:
        """Give a gateway the lease and a new epoch, which the others receive with its next heartbeat."""
        self.holder = tag
        number = 1 + max(max(item.ownership.seen, item.ownership.promised).number for item in self.gateways.values())
        self[tag].ownership.elected(OwnerEpoch(number, tag), self.now)
        self[tag].settle()

    def pass_time(self, seconds: float, *tags: str) -> None:
        """Advance the time in steps of a tick; these gateways tick, or all of them that live."""
        until = self.now + seconds
        while self.now < until - 1e-9:
            self.now = min(until, self.now + 0.1)
            for tag in tags or sorted(set(self.gateways) - self.dead):
                self[tag].tick()

    def run(self, seconds: float) -> None:
        """Advance the time, and deliver all messages at each step."""
        until = self.now + seconds
        while self.now < until - 1e-9:
            self.pass_time(min(0.1, until - self.now))
            self.deliver_all()

    def check(self) -> None:
        """Raise AssertionError if a router is inconsistent."""
        for gateway in self.gateways.values():
            gateway.check()


def linked(tags: str = "ab", *, size: int = 2, **settings: float) -> LinkedGateways:
    """Return gateways of which the first owns the pool."""
    group = LinkedGateways({tag: pool(size=size, **settings) for tag in tags})
    group.elect(tags[0])
    group.run(0.1)
    assert [group[tag].ownership.role for tag in tags] == [OWNER] + [ASKS] * (len(tags) - 1)
    return group


def made(number: int, tag: str, group: LinkedGateways | None = None, **fields: object) -> InferenceRequest:
    at = 0.0 if group is None else group.now
    asked = request(number, range(BLOCKS * number, BLOCKS * (number + 1)), at=at)
    return msgspec.structs.replace(asked, request_id=f"{number:04}-{tag}", **fields)


def placed(group: LinkedGateways, number: int, tag: str) -> str:
    """Place a request, and deliver all messages; return its id."""
    asked = made(number, tag, group)
    group[tag].place(asked)
    group.deliver_all()
    return asked.request_id


def in_flight(gateway: LinkedGateway) -> set[str]:
    return set(gateway.router.reservations.by_id)
