"""Messages between gateways of one region about a pool: keys, lengths, and deadlines, never a prompt.

Times in a message are seconds relative to the time of sending, because each machine has its own clock. The transmission
time is unknown.
"""

from __future__ import annotations

import msgspec

from routing.advisories.advised_sessions import StoredAdvisory
from routing.regions.region_view import PoolLoadReport
from routing.values.decision import Decision, Rejected
from routing.values.inference_request import InferenceRequest
from routing.values.observation import Completed, Failed, FirstToken, HandedOver, LoadResult, Observation

ANSWERS_LOST = 0
"""In place of the number of an ask, which starts at 1: earlier answers may be lost."""
FIRST_TOKEN, HANDED_OVER, COMPLETED, FAILED = 0, 1, 2, 3


class OwnerEpoch(msgspec.Struct, frozen=True, order=True, array_like=True):
    """One owner's term for a pool. The greater of two epochs is valid."""

    number: int = 0
    """0: the pool never had an owner."""
    owner: str = ""
    """Tag of the gateway's ids."""


class Ask(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=0):
    """Choose an engine for this request."""

    ask_id: int
    pool_id: str
    epoch: OwnerEpoch
    request: InferenceRequest
    hold: bool
    excluded: tuple[str, ...]


class Withdraw(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=1):
    """The request no longer needs an engine, or has one from elsewhere."""

    ask_id: int
    pool_id: str
    epoch: OwnerEpoch
    request_id: str


class OwnerNotice(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=2):
    """An event of a dispatched request: one of the four events above."""

    pool_id: str
    epoch: OwnerEpoch
    request_id: str
    moment: int
    cached_tokens: int | None = None
    load: LoadResult | None = None

    @property
    def observation(self) -> Observation:
        """The event as the router receives it."""
        if self.moment == COMPLETED:
            return Completed(self.request_id, self.cached_tokens, self.load)
        if self.moment == FIRST_TOKEN:
            return FirstToken(self.request_id)
        return HandedOver(self.request_id, self.load) if self.moment == HANDED_OVER else Failed(self.request_id)


class Took(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=3):
    """The sender has given this request to this engine without an owner of this epoch."""

    pool_id: str
    epoch: OwnerEpoch
    request: InferenceRequest
    engine_id: str
    decoding: bool


class Afresh(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=5):
    """Remove all requests of the sender; its running ones follow."""

    pool_id: str
    epoch: OwnerEpoch


class OwnerAnswered(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=4):
    """An answer to an ask. Without decision and rejection, it is queued if `epoch` is the ask's, else rejected."""

    ask_id: int
    pool_id: str
    epoch: OwnerEpoch
    decision: Decision | None = None
    age_s: float = 0.0
    """Seconds since `decision.decided_s` on the owner's clock."""
    rejected: Rejected | None = None
    advisory: StoredAdvisory | None = None
    """The outcome of the request's advisory."""
    holders: tuple[str, ...] = ()
    """Nodes that can send the decided load, in the order to try them."""


class Batch(msgspec.Struct, frozen=True, array_like=True):
    """Messages to one gateway within one event loop step."""

    to: str
    """The gateway's tag, because another process may have its address now."""
    messages: list[Ask | Withdraw | OwnerNotice | Took | Afresh | OwnerAnswered]


class OwnedPool(msgspec.Struct, frozen=True, array_like=True):
    """One pool in an owner's heartbeat."""

    pool_id: str
    epoch: OwnerEpoch
    load: PoolLoadReport | None = None
    """Load of the pool as the owner sees it, if region rules need it."""


class Beat(msgspec.Struct, frozen=True, array_like=True):
    """An owner's heartbeat, or a proposal to own these pools. It is answered if one of its epochs is stale."""

    pools: list[OwnedPool]


def notice_of(observation: Observation, pool_id: str, epoch: OwnerEpoch) -> OwnerNotice:
    """Return the notice of an event."""
    name = observation.request_id
    if isinstance(observation, Completed):
        return OwnerNotice(pool_id, epoch, name, COMPLETED, observation.cached_tokens, observation.load)
    if isinstance(observation, HandedOver):
        return OwnerNotice(pool_id, epoch, name, HANDED_OVER, None, observation.load)
    return OwnerNotice(pool_id, epoch, name, FIRST_TOKEN if isinstance(observation, FirstToken) else FAILED)


OwnerMessage = Ask | Withdraw | OwnerNotice | Took | Afresh | OwnerAnswered
_FIELDS = len(InferenceRequest.__struct_fields__)


def sent(request: InferenceRequest, now: float) -> InferenceRequest:
    """Return the request in wire format: times relative to `now`, without facts for its own gateway only."""
    core = InferenceRequest(*msgspec.structs.astuple(request)[:_FIELDS])
    return msgspec.structs.replace(core, arrived_s=request.arrived_s - now, give_up_s=request.give_up_s - now)


def received(request: InferenceRequest, now: float, *, same_keys: bool) -> InferenceRequest:
    """Return the request on this machine's clock, without block keys unless they identify the same blocks here."""
    moved = msgspec.structs.replace(request, arrived_s=request.arrived_s + now, give_up_s=request.give_up_s + now)
    return moved if same_keys else msgspec.structs.replace(moved, keys=(), head=())
