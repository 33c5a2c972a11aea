"""Choose an engine for a session whose next request was announced, and keep or replace it on arrival.

Advisories are optional: a pool routes fully without them. They only reserve an engine softly and name blocks worth
transferring. `gated` chooses by cost, transfers blocks that would arrive in time, and lets the arrival overrule the
reservation (research on advisories, §5). `symphony` follows the paper: it reserves the engine with the fewest requests,
transfers blocks in any case, and never overrules; a session without an advisory stays on its last engine (§3.6).
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

from routing.advisories.advised_sessions import EXPECTED_SHARE, LIFETIME_S, AdvisedSession, AdvisedSessions
from routing.advisories.session_cost import EngineOffer, SessionCost, SessionEngineSpeed, at_arrival, cheapest, cost_of
from routing.cost.cost_model import DecodeCost, PrefillCost
from routing.ledger.fleet_view import FleetView
from routing.ledger.prefill_with_loads import Prefill, Prefills
from routing.policy.policy_document import GATED, OFF, SYMPHONY, RoutingPolicy
from routing.values import reasons
from routing.values.decision import Candidate, Choice
from routing.values.inference_request import InferenceRequest
from routing.values.load_options import Fetch, LoadOptions

ETA_LIMIT_S = 4.0
"""Longer transfers are not started: the backlog changes before they end."""


def prefetch_starts(eta_s: float, lead_s: float, limit_s: float = ETA_LIMIT_S) -> bool:
    """Return whether to start a transfer that would end in `eta_s`, for a request expected in `lead_s`.

    Prefetches that ignore the links' backlog overload them once disks or memory are short (research on advisories, §5).
    """
    return 0.0 < eta_s < min(lead_s, limit_s)


OVERRULE_S = 0.3
"""An arrival overrules its reservation if another engine is cheaper by more than this."""
ANSWER_TOKENS = 264
"""Mean answer length in the study's conversations, assumed because an advisory cannot know the length of the next
answer.
"""
STICKY_S = 3600.0
"""How long a session without an advisory keeps its last engine."""
_KEPT = 4
_NOWHERE = float("inf")


class Staging(NamedTuple):
    """Blocks of a session to stage near the engine before its request arrives."""

    source: str
    """Name of the node that holds the blocks. The target's own node loads them from its SSD into DRAM."""
    target: str
    keys: tuple[int, ...]
    move_s: float
    """Expected seconds of the move itself."""
    eta_s: float
    """Seconds until the blocks arrive, including the moves to the node that are not complete."""


class Advised(NamedTuple):
    """Result of an advisory."""

    engine_id: str
    staging: Staging | None
    """None if no block has to move, none could arrive in time, or computing is faster."""
    expires_s: float
    """When the reservation ends without the request."""


class Option(NamedTuple):
    """What a session would cost on one engine."""

    target: int
    held: int
    prefill: Prefill
    cost: SessionCost


def session_key(tenant_id: str, session_id: str) -> int:
    """Return the number that identifies a tenant's session in the table of reservations."""
    # The length keeps both names apart: no other pair gives the same string. JSON can hold lone surrogates.
    name = f"{len(tenant_id)}:{tenant_id}{session_id}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(name, digest_size=8).digest(), "big")


class AdvisedRouting:
    """Soft reservations of one pool, and their effect on decisions. Mutable: `sessions` and the policy's settings."""

    lifetime_s = LIFETIME_S
    """How long a reservation lasts; with a longer lead, as long again."""

    def __init__(self, view: FleetView, policy: RoutingPolicy) -> None:
        self._view, self.rule = view, policy.advisories
        self.sessions = AdvisedSessions()
        self.adopt(policy)

    def adopt(self, policy: RoutingPolicy) -> None:
        """Follow this policy. Changing the advisory rule ends all reservations."""
        prefill, decode = PrefillCost.of(policy.prefill_cost), DecodeCost.of(policy.decode_cost)
        self._speed = SessionEngineSpeed(
            prefill_s_per_token=prefill.per_token_s,
            attention_s_per_token_pair=prefill.per_token_squared_s,
            read_s_per_token=decode.per_context_token_s,
            step_s_per_request=decode.per_sequence_s,
            answer_tokens=ANSWER_TOKENS,
        )
        self.sticks = policy.advisories == SYMPHONY
        """Whether sessions without an advisory stay on their last engine."""
        if self.rule != policy.advisories:
            self.rule, self.sessions = policy.advisories, AdvisedSessions()

    def advise(
        self, request: InferenceRequest, last_engine: str, lead_s: float, now: float, backlog: dict[str, float]
    ) -> Advised | None:
        """Reserve an engine for a session. Return None if the rule is off or no engine accepts work.

        `request` represents the next request: its known keys, and the minimum number of tokens in its context.
        `backlog` maps each node to the seconds until its queued transfers are complete.
        """
        view = self._view
        self.sessions.expire(now)
        if self.rule == OFF or not view.roster.accepting:
            return None
        session = session_key(request.tenant_id, request.session_id)
        # Before the options are scored: a session's old reservation must not count against it.
        self.sessions.release(session)
        loads = view.load_options(request, now)
        options = self._options(request, view, loads, now)
        chosen = self._chosen(options, last_engine)
        # With a long lead, the request may be late by as much again.
        expires_s = now + max(self.lifetime_s, 2 * lead_s)
        self.sessions.reserve(
            AdvisedSession(
                session_id=session,
                engine_id=chosen.target,
                tokens=request.prompt_tokens,
                expected_s=now + lead_s,
                expires_s=expires_s,
            )
        )
        staging = self._staging(request, chosen, loads, backlog)
        if staging is not None and self.rule == GATED and not prefetch_starts(staging.eta_s, lead_s):
            staging = None
        return Advised(view.roster.engine_ids[chosen.target], staging, expires_s)

    def arrive(self, request: InferenceRequest, choice: Choice, view: FleetView, now: float) -> Choice:
        """Return an announced request's choice: the reserved engine, unless the placement's choice is clearly cheaper.

        `choice` is the placement's choice. It is returned unchanged if there is no reservation.
        """
        # An arrival ends the reservation, whether it is kept or not.
        reserved = self.sessions.release(session_key(request.tenant_id, request.session_id))
        if reserved is None or reserved.expires_s <= now or reserved.engine_id not in view.roster.accepting:
            return choice
        loads = choice.loads if choice.loads is not None else view.load_options(request, now)
        options = {option.target: option for option in self._options(request, view, loads, now)}
        held = options[reserved.engine_id]
        if self.rule == GATED:
            best = at_arrival([option.cost for option in options.values()], held.target, OVERRULE_S)
            if best.engine_id != held.target:
                return choice
        others = sorted(options.values(), key=lambda option: (option.cost.total_s, option.target))
        kept = [
            _candidate(known, view, now) for known in [held, *(other for other in others if other is not held)][:_KEPT]
        ]
        return Choice(held.target, reasons.ADVISED, tuple(kept), held.prefill.fetch, loads)

    def keep(self, request: InferenceRequest, target: int, now: float) -> None:
        """Record a session's engine. The session keeps it, without counting as expected load."""
        if request.session_id:
            session = session_key(request.tenant_id, request.session_id)
            end = now + STICKY_S
            self.sessions.reserve(
                AdvisedSession(
                    session_id=session, engine_id=target, tokens=0, expected_s=end, expires_s=end, announced=False
                )
            )

    def withdraw(self, tenant_id: str, session_id: str) -> bool:
        """End a session's reservation. Return whether it had one."""
        return self.sessions.release(session_key(tenant_id, session_id)) is not None

    def _options(
        self, request: InferenceRequest, view: FleetView, loads: LoadOptions | None, now: float
    ) -> list[Option]:
        """Return the cost of each engine for the session."""
        prefills, held = Prefills(request, view, loads), view.held(view.match(request))
        options = []
        for target in view.roster.accepting:
            blocks, wait_s = held[target], view.wait_s(target, now)
            prefill = prefills.on(target, blocks)
            offer = EngineOffer(
                engine_id=target,
                load_s=wait_s + prefill.seconds if prefill.hit_tokens else _NOWHERE,
                prefill_backlog_s=wait_s,
                resident_tokens=view.load.active_blocks[target] * request.block_tokens
                + EXPECTED_SHARE * self.sessions.tokens_at(target),
                requests=view.load.in_flight_requests[target] + EXPECTED_SHARE * self.sessions.sessions_at(target),
            )
            # `prefill` is the cheaper of loading and computing already.
            cost = cost_of(offer, request.prompt_tokens, self._speed, may_recompute=False)
            options.append(Option(target, blocks, prefill, cost))
        return options

    def _chosen(self, options: Sequence[Option], last_engine: str) -> Option:
        if self.rule == SYMPHONY:
            requests, expected = self._view.load.in_flight_requests, self.sessions.sessions_at
            return min(options, key=lambda option: (requests[option.target] + expected(option.target), option.target))
        return self._cheapest(options)

    def _cheapest(self, options: Sequence[Option]) -> Option:
        best = cheapest(option.cost for option in options)
        return next(option for option in options if option.target == best.engine_id)

    def _staging(
        self, request: InferenceRequest, chosen: Option, loads: LoadOptions | None, backlog: dict[str, float]
    ) -> Staging | None:
        """Return the blocks to transfer to the chosen engine's own node, if loading is faster than computing."""
        fetch = self._fetch(chosen, loads) if loads is not None else None
        if loads is None or fetch is None:
            return None
        home, costs = loads.costs.homes[self._view.roster.engine_ids[chosen.target]], loads.costs
        # Only what the node lacks is moved: blocks of others, or what it holds on SSD alone.
        own = loads.blocks_on(home)
        in_dram = own - loads.on_ssd(home, 0, own) if fetch.node == home else own
        first = max(chosen.held, in_dram)
        keys = request.keys[first : fetch.blocks]
        if not keys:
            return None
        lengths = home, fetch.node, len(keys), loads.on_ssd(fetch.node, first, fetch.blocks)
        eta_s = costs.seconds(*lengths) + backlog.get(home, 0.0)
        return Staging(fetch.node, home, keys, costs.transfer_s(*lengths), eta_s)

    def _fetch(self, chosen: Option, loads: LoadOptions) -> Fetch | None:
        """Return the load to stage. SYMPHONY transfers all that there is, whatever computing takes."""
        if self.rule == SYMPHONY:
            return next(iter(loads.onto(self._view.roster.engine_ids[chosen.target], chosen.held)), None)
        return chosen.prefill.fetch


def _candidate(option: Option, view: FleetView, now: float) -> Candidate:
    name, prefill = view.roster.engine_ids[option.target], option.prefill
    wait_s = view.wait_s(option.target, now)
    return Candidate(name, prefill.hit_tokens, wait_s, prefill.seconds, option.cost.total_s, option.held)
