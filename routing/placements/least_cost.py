"""Least wait + β × compute over the whole pool: affinity and balance in one rule at every load.

Weighing the compute time above the wait makes cache hits worth waiting for, and never switching the
rule under overload keeps them when they are needed most (research on scheduling §4, §5).
"""

from __future__ import annotations

from random import Random
from typing import Annotated

import msgspec

from routing.ledger.fleet_view import FleetView, tie_salt
from routing.ledger.node_loads import Loadable
from routing.ledger.prefill_with_loads import Prefill, Prefills, what_loads
from routing.placements.candidate_scores import KEPT
from routing.policy.setting import about, number
from routing.values import reasons
from routing.values.decision import Candidate, Choice
from routing.values.inference_request import InferenceRequest

FEW_OF = 4
"""A prefix belongs everywhere where at most one engine in so many lacks it."""


class LeastCost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Picks the engine with the least wait + β × prefill, among holders of the prefix and the least waiting other."""

    beta: Annotated[
        float,
        about("β, compute weight", "Seconds of waiting that equal one second of recomputation."),
        number("s per s", ge=0.01, le=1000, usual=(4, 12)),
    ] = 8.0

    def choose(self, request: InferenceRequest, view: FleetView, now: float, rng: Random) -> Choice:
        """Return the engine of least cost.

        β keeps prompts where their cache is, which would leave an engine idle for ever that has lost a prefix which
        almost all others hold. Idle, it computes the shared part at its plain price: nobody waits for that, and all
        who come after find it there.
        """
        if view.nodes is not None:
            loadable = what_loads(request, view.nodes, now)
            if loadable is not None:
                return self._counting_loads(request, view, now, loadable)
        roster, load, salt = view.roster, view.load, tie_salt(request)
        beta, ready_at, alike = self.beta, load.ready_at, roster.alike
        scored: list[tuple[float, int, int, float, int, int, float]] = []
        others = roster.accepting_mask
        hit, compute, blocks = 0, 0.0, 0
        for blocks, mask in view.match(request).groups:
            others ^= mask
            holders = mask
            known = False
            while holders:
                low = holders & -holders
                holders ^= low
                target = low.bit_length() - 1
                if not known:
                    hit = view.hit_tokens(request, target, blocks)
                    compute = view.compute_s(request, target, hit)
                    known = alike
                wait = ready_at[target] - now
                wait = wait if wait > 0.0 else 0.0
                scored.append((beta * compute + wait, target ^ salt, target, compute, hit, blocks, wait))
        parts = view.by_adapter(request, others) if request.adapter else (others,)
        for target in [each for part in parts for each in _least_waiting(view, part)]:
            compute = view.compute_s(request, target, 0)
            wait = ready_at[target] - now
            wait = wait if wait > 0.0 else 0.0
            cost = beta * compute + wait
            if blocks and wait == 0.0 and not load.in_flight_requests[target] and _few(others, view):
                shared_hit = view.hit_tokens(request, target, blocks)
                cost -= (beta - 1.0) * (compute - view.compute_s(request, target, shared_hit))
            scored.append((cost, target ^ salt, target, compute, 0, 0, wait))
        scored.sort()
        ids = roster.engine_ids
        kept = [
            Candidate(ids[target], hit, wait, compute, cost, blocks)
            for cost, _, target, compute, hit, blocks, wait in scored[:KEPT]
        ]
        return Choice(scored[0][2], reasons.LEAST_COST, tuple(kept))

    def _counting_loads(self, request: InferenceRequest, view: FleetView, now: float, loadable: Loadable) -> Choice:
        """Return the engine of least cost where node managers hold some of the prompt: hits weigh by where they lie.

        Engines that share a node load alike, so of those that hold nothing the least waiting one per node is looked at.
        """
        roster, prefills, salt = view.roster, Prefills(request, view, loadable), tie_salt(request)
        others, looked_at, blocks = roster.accepting_mask, [], 0
        for blocks, mask in view.match(request).groups:
            others &= ~mask
            looked_at += [(target, blocks) for target in roster.accepting if mask >> target & 1]
        for mask in [part for home in _by_home(view, others) for part in view.by_adapter(request, home)]:
            looked_at += [(target, 0) for target in _least_waiting(view, mask)]
        scored = []
        for target, held in looked_at:
            wait_s, prefill = view.wait_s(target, now), prefills.on(target, held)
            cost = self.beta * prefill.seconds + wait_s
            idle = wait_s == 0.0 and not view.load.in_flight_requests[target]
            if blocks and not held and idle and _few(others, view):
                shared_s = prefill.seconds - prefills.on(target, blocks).seconds
                cost -= (self.beta - 1.0) * max(0.0, shared_s)
            scored.append((cost, target ^ salt, target, held, wait_s, prefill))
        scored.sort(key=_order)
        kept = [
            Candidate(roster.engine_ids[target], prefill.hit_tokens, wait_s, prefill.seconds, cost, held)
            for cost, _, target, held, wait_s, prefill in scored[:KEPT]
        ]
        fetch = scored[0][5].fetch
        return Choice(scored[0][2], reasons.LOAD if fetch is not None else reasons.LEAST_COST, tuple(kept), fetch)


def _order(scored: tuple[float, int, int, int, float, Prefill]) -> tuple[float, int]:
    return scored[:2]


def _by_home(view: FleetView, others: int) -> list[int]:
    """Return the non-holders as one bitset per node that keeps what they compute, in the order of their ids."""
    homes = view.nodes.homes if view.nodes is not None else {}
    masks: dict[str, int] = {}
    for target in view.roster.accepting:
        if others >> target & 1:
            home = homes.get(view.roster.engine_ids[target], "")
            masks[home] = masks.get(home, 0) | 1 << target
    return list(masks.values())


def _few(others: int, view: FleetView) -> bool:
    return others.bit_count() * FEW_OF <= len(view.roster.accepting)


def _least_waiting(view: FleetView, others: int) -> tuple[int, ...]:
    """Return the non-holders that can win: the least waiting one, or all where speeds differ.

    Of idle engines that is the one idle for longest, so new prompts go round an idle fleet.
    """
    if not others:
        return ()
    roster, load = view.roster, view.load
    if not roster.uniform:
        return tuple(target for target in roster.accepting if others >> target & 1)
    if load.ready_order is not None:
        first = load.ready_order.first(others)
        return (first,) if first >= 0 else ()
    ready_at = load.ready_at
    first = ready_at.index(min(ready_at))
    if others >> first & 1:
        return (first,)
    return (min((target for target in roster.accepting if others >> target & 1), key=ready_at.__getitem__),)
