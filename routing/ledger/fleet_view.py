"""The fleet in the routing core: facts given from outside, and a view for placements."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from kvstore.index.prefix_match import PrefixMatch
from routing.cost.cost_model import DecodeCost, PrefillCost
from routing.ledger.decode_ledger import DecodePrice, DecodeRates
from routing.ledger.node_loads import NodeLoads
from routing.ledger.own_loads import OwnLoads
from routing.ledger.ready_targets import ReadyOrder
from routing.values.decision import Candidate, Loading
from routing.values.inference_request import InferenceRequest
from routing.values.load_options import LoadOptions

Derived = TypeVar("Derived")

Match = Callable[[Sequence[int], int], PrefixMatch]
"""Returns the leading blocks per target, given a prompt's keys and the bitset of targets to consider."""

NEVER = math.inf


class EngineFacts(msgspec.Struct, frozen=True):
    """The gateway's facts about one engine. A new incarnation counts as a new engine with an empty cache."""

    engine_id: str
    incarnation: int
    accepts: bool
    """False if the engine accepts no new work (draining, lost, in maintenance)."""
    speed: float = 1.0
    """Prefill speed relative to the pool's cost model."""
    trust: float = 1.0
    """Weight of an index hit: 1 exact, 0.5 degraded, 0 unknown cache contents."""
    cost: PrefillCost | None = None
    """Learned cost of engines of its kind, None to use the policy's cost."""
    decode_cost: DecodeCost | None = None
    role: str = "mixed"
    """mixed, prefill, or decode: the engine's part of each request (routing.values.engine_pair)."""
    share: float = 1.0
    """Share of its usual load that the engine may have, 0..1, by which `speed` is lowered."""


class EngineLoad(msgspec.Struct, frozen=True, gc=False):
    """Unfinished work that the gateway has given to one engine."""

    engine_id: str
    in_flight_tokens: int
    """Uncached prompt tokens bound to the engine or in prefill on it."""
    in_flight_s: float
    """Seconds until the engine is expected to have prefilled them."""
    running: int
    """Dispatched requests that are not complete."""
    bound: int
    """Requests that wait at the gateway for this engine."""
    stepped_down: bool = False
    """Whether the policy dispatches by the engine's reports but has no fresh one: its prefill window alone decides."""


@dataclass(slots=True, eq=False)
class Roster:
    """The engines and their properties. Lists are indexed by target; the fleet table keeps them."""

    version: int = 0
    """Increases with each change of the engines."""
    accepting: tuple[int, ...] = ()
    """Targets that accept new work, in the order of their engine ids."""
    accepting_mask: int = 0
    engine_ids: list[str] = field(default_factory=list)
    costs: list[PrefillCost | None] = field(default_factory=list)
    """Learned costs, None to use the policy's."""
    decode_costs: list[DecodeCost | None] = field(default_factory=list)
    speeds: list[float] = field(default_factory=list)
    trusts: list[float] = field(default_factory=list)
    shares: dict[int, float] = field(default_factory=dict)
    """Target → share of its usual load, of those that return or are new."""
    alike: bool = True
    """Whether all accepting targets have the same cost, speed, and trust, and make no loads."""
    uniform: bool = True
    """All accepting targets have the same cost and the same speed."""
    decodes_alike: bool = True
    """All accepting targets have the same decode cost."""
    widened: Mapping[int, int] = field(default_factory=dict)
    """Affinity key → number of candidates, for prefixes widened by rebalancing."""

    def copy(self) -> Roster:
        """Return another roster that shares these lists."""
        other = Roster()
        for name in self.__slots__:
            setattr(other, name, getattr(self, name))
        return other


@dataclass(slots=True, eq=False)
class FleetLoad:
    """Load of each target in the gateway's ledger, updated by reservations. Lists are indexed by target."""

    decisions: int = 0
    """Decisions made so far."""
    ready_at: list[float] = field(default_factory=list)
    """When the target is expected to have prefilled all its work, NEVER if it accepts none."""
    ready_order: ReadyOrder | None = None
    """The targets by `ready_at`, None in small fleets."""
    in_flight_tokens: list[int] = field(default_factory=list)
    """Uncached prompt tokens of queued requests bound to the target and of its running prefills."""
    in_flight_requests: list[int] = field(default_factory=list)
    """Queued requests bound to the target, and its dispatched requests that are not complete."""
    pending_requests: list[int] = field(default_factory=list)
    """Requests without a first token: queued requests bound to the target, and its running prefills."""
    active_blocks: list[int] = field(default_factory=list)
    """Prompt blocks of all in-flight requests, cached or not."""
    answers: list[int] = field(default_factory=list)
    """Answers that in-flight requests decode on the target now or later."""
    answer_order: ReadyOrder | None = None
    """The targets by `answers`, None in small fleets."""
    context_tokens: list[int] = field(default_factory=list)
    """Prompt tokens that these answers attend to."""
    room_tokens: list[float] = field(default_factory=list)
    """Free KV memory in the engine's last report, minus the prompts sent since. Infinite if it reported none."""
    reported_pending: list[int] = field(default_factory=list)
    """Accepted requests that have not started, in the same report."""
    room_until: list[float] = field(default_factory=list)
    """When that report becomes too old to count."""
    sent_blocks: list[int] = field(default_factory=list)
    """Prompt blocks ever sent to this incarnation that were neither in its cache nor on their way to it, as far as
    known.
    """

    def grow(self) -> None:
        """Add an idle target."""
        for name, nothing in _NOTHING.items():
            getattr(self, name).append(nothing)

    def clear(self, target: int) -> None:
        """Forget the target's work."""
        for name, nothing in _NOTHING.items():
            getattr(self, name)[target] = nothing


# A new target is never ready: it gets no work before it is opened.
_NOTHING = {
    "ready_at": NEVER, "in_flight_tokens": 0, "in_flight_requests": 0, "pending_requests": 0, "active_blocks": 0,
    "answers": 0, "context_tokens": 0, "room_tokens": NEVER, "reported_pending": 0, "room_until": 0.0, "sent_blocks": 0,
}  # fmt: skip


class FleetCache(NamedTuple):
    """Cached blocks of each target."""

    coming: Match
    """Counts blocks that are present or on their way."""
    resident: Match
    """Counts blocks that are present, which can be transferred."""


class FleetView:
    """Read-only view of one pool's engines for placements: roster, load, cache, and estimates from them.

    Targets are bit numbers of the prefix index. The router owns the parts and updates them between decisions. A
    placement reads them and keeps no copy.
    """

    __slots__ = ("_derived", "_prefill_cost", "cache", "decode", "load", "nodes", "own", "roster", "sending_until")

    def __init__(self, cache: FleetCache, prefill_cost: PrefillCost) -> None:
        self.roster = Roster()
        self.load = FleetLoad()
        self.cache = cache
        self.nodes: NodeLoads | None = None
        """Blocks that engines can load from node managers, None if no engine of the pool has its own node."""
        self.decode = DecodePrice()
        """Cost of answers for the requests that share their engine."""
        self.sending_until: Mapping[str, float] | None = None
        """When an engine's transfers to others end, in a simulation whose engines send each other blocks. Else None."""
        self.own: OwnLoads | None = None
        """Loads that engines make. None until an engine has a lower tier or a request has an adapter."""
        self._prefill_cost = prefill_cost
        self._derived: dict[object, object] = {}

    def match(self, request: InferenceRequest) -> PrefixMatch:
        """Return how much of the prompt each target holds, including blocks on their way and in lower tiers."""
        mask = self.roster.accepting_mask
        match = self.cache.coming(request.keys, mask)
        return match if self.own is None else self.own.matched(request, match, mask)

    def match_among(self, request: InferenceRequest, among: int) -> PrefixMatch:
        """Return the same for the targets in the bitset `among` only, which is faster for fewer holders."""
        match = self.cache.coming(request.keys, among)
        return match if self.own is None else self.own.matched(request, match, among)

    def resident_match(self, request: InferenceRequest) -> PrefixMatch:
        """Return how much of the prompt is present on each target and can be transferred from it."""
        return self.cache.resident(request.keys, self.roster.accepting_mask)

    def held(self, match: PrefixMatch) -> list[int]:
        """Return the matched blocks of every target, 0 if a target holds none."""
        held = [0] * len(self.roster.engine_ids)
        for blocks, mask in match.groups:
            left = mask
            while left:
                low = left & -left
                left ^= low
                held[low.bit_length() - 1] = blocks
        return held

    def load_options(
        self, request: InferenceRequest, now: float, known: LoadOptions | None = None
    ) -> LoadOptions | None:
        """Return what the prompt can load, or `known` if that is still current.

        None if no engine has its own node, or if the sender would not order the load.
        """
        nodes = self.nodes
        return nodes.options(request.keys, now, known) if nodes is not None and request.may_load else None

    def wait_s(self, target: int, now: float) -> float:
        """Return the seconds until a request sent there would start its prefill."""
        wait = self.load.ready_at[target] - now
        return wait if wait > 0.0 else 0.0

    def hit_tokens(self, request: InferenceRequest, target: int, blocks: int) -> int:
        """Return the prompt tokens in `blocks` matched blocks, weighted by the trust in the target's index."""
        held, prompt_tokens = blocks * request.block_tokens, request.prompt_tokens
        hit = held if held < prompt_tokens else prompt_tokens
        trust = self.roster.trusts[target]
        return hit if trust == 1.0 else int(hit * trust)

    def compute_s(self, request: InferenceRequest, target: int, hit_tokens: int) -> float:
        """Return the seconds of the request's prefill on the target, including the loads that the engine makes."""
        roster = self.roster
        cost = roster.costs[target] or self._prefill_cost
        seconds = cost.seconds(request.prompt_tokens, hit_tokens) / roster.speeds[target]
        if self.own is None:
            return seconds
        loading = self.loading(request, target, hit_tokens)
        return seconds if loading is None else seconds + loading.seconds

    def loading(self, request: InferenceRequest, target: int, hit_tokens: int) -> Loading | None:
        """Return the load that the engine makes for a request with `hit_tokens` cached there, or None."""
        own, roster = self.own, self.roster
        if own is None:
            return None
        # Only the loads of the request matched last are kept, and another may have come between.
        if not own.knows(request, target):
            self.match_among(request, self.roster.accepting_mask | 1 << target)
        token_s = (roster.costs[target] or self._prefill_cost).per_token_s / roster.speeds[target]
        return own.loading(request, roster.engine_ids[target], target, hit_tokens, token_s)

    def shown(self, request: InferenceRequest, scored: Candidate, target: int) -> Candidate:
        """Return a candidate including the load that its engine makes, for records."""
        if self.own is None:
            return scored
        loading = self.loading(request, target, scored.hit_tokens)
        return replace(scored, blocks=self.own.in_memory(target, scored.blocks), loading=loading)

    def by_adapter(self, request: InferenceRequest, targets: int) -> tuple[int, ...]:
        """Return the targets in groups: with the request's adapter loaded, and without."""
        if self.own is None or not request.adapter:
            return (targets,)
        having = self.own.adapters.targets(request.adapter) & targets
        return having, targets ^ having

    def decode_rates(self, request: InferenceRequest, target: int) -> DecodeRates:
        """Return the cost rates of the request's answers on the target, using the learned cost of its kind."""
        return self.decode.rates(request, self.roster.decode_costs[target], alike=self.roster.decodes_alike)

    def sharing_s(
        self, request: InferenceRequest, target: int, hit_tokens: int, rates: DecodeRates, now: float
    ) -> tuple[float, float, float]:
        """Return the cost of answers that share the target: longer steps, late steps, and the wait for KV memory.

        `rates` apply if all targets decode alike. Missing memory in an outdated report costs nothing, because it can be
        free again.
        """
        load = self.load
        if not self.roster.decodes_alike:
            rates = self.decode_rates(request, target)
        room = load.room_tokens[target] if now < load.room_until[target] else NEVER
        lacking = request.prompt_tokens - hit_tokens - room
        return rates.parts(load.answers[target], load.context_tokens[target], lacking)

    def unheld_s(self, request: InferenceRequest) -> float:
        """Return the seconds of the request's prefill without cached blocks on an engine of speed 1."""
        return self._prefill_cost.seconds(request.prompt_tokens, 0)

    def derived(self, name: object, build: Callable[[FleetView], Derived]) -> Derived:
        """Return the result of `build` (such as hash rings), computed once per version of the engines."""
        value = self._derived.get(name)
        if value is None:
            value = self._derived[name] = build(self)
        return value  # type: ignore[return-value]  # made by `build`; cast() would cost a call

    def forget_derived(self) -> None:
        """Drop derived values. The router calls it when the engines change."""
        self._derived.clear()

    def set_prefill_cost(self, prefill_cost: PrefillCost) -> None:
        """Change the cost model of estimates. The router calls it when the policy changes."""
        self._prefill_cost = prefill_cost

    def twin(self, prefill_cost: PrefillCost) -> FleetView:
        """Return a view of the same engines with separate derived values and cost model. `follow` refreshes it."""
        other = FleetView(self.cache, prefill_cost)
        other.follow(self)
        return other

    def follow(self, other: FleetView) -> None:
        """Refresh from `other`. Its parts are shared, so they stay up to date."""
        own, roster = self.roster, other.roster
        if own.version != roster.version or own.widened is not roster.widened:
            self.forget_derived()
        # A copy, because the version of `other` may change before this view is refreshed.
        self.roster, self.load, self.nodes = roster.copy(), other.load, other.nodes
        self.own, self.decode, self.sending_until = other.own, other.decode, other.sending_until

    def without(self, excluded: frozenset[str]) -> FleetView:
        """Return a view in which these engines accept no work, or the same view if no engine would remain."""
        roster = self.roster
        accepting = tuple(target for target in roster.accepting if roster.engine_ids[target] not in excluded)
        if not accepting:
            return self
        other = self.twin(self._prefill_cost)
        other.roster.accepting = accepting
        other.roster.accepting_mask = sum(1 << target for target in accepting)
        return other


def tie_salt(request: InferenceRequest) -> int:
    """Return a number that differs from prompt to prompt, without randomness.

    `target ^ salt` orders equally good targets, and `targets[salt % n]` picks one. Without it, an idle fleet would send
    every new prompt to the engine with the first id and thrash its cache.
    """
    return (request.keys[-1] if request.keys else id_tail(request.request_id)) >> 8 & 0xFFFF


def id_tail(text: str) -> int:
    """Return the last 8 bytes of a text as a number. Python's `hash` differs between processes."""
    # The end of the text, since ids are UUIDv7 and begin with the time.
    return int.from_bytes(text.encode()[-8:].rjust(8, b"\0"), "little")
