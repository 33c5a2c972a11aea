"""Lowest wait + β × compute + cost of running answers: combines affinity and balance in one rule for every load.

Weighing compute time above the wait makes cache hits worth waiting for. The rule stays the same under overload, so hits
are kept when they matter most (research on scheduling §4, §5). Answers that share an engine make each other's steps
longer and wait for its memory (routing.ledger.decode_ledger, decision 59).
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Annotated

import msgspec

from routing.ledger.fleet_view import FleetView, tie_salt
from routing.ledger.prefill_with_loads import Prefills
from routing.placements.candidate_scores import KEPT
from routing.policy.setting import about, number
from routing.values import reasons
from routing.values.decision import Candidate, Choice
from routing.values.inference_request import InferenceRequest

FEW_OF = 4
"""A prefix belongs on every engine if at most one in this many lacks it."""
BUSIER, BY_ANSWERS = 2, 8
"""A prefix spreads to another engine before its holder decodes this many times, and this many more, answers than that
one.
"""


class LeastCost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Picks the engine of lowest cost among the holders of the prefix and the least loaded others."""

    # docs/decisions/0001-least-cost-first.md compares 8 with the published placements.
    beta: Annotated[
        float,
        about("β, compute weight", "Seconds of waiting that equal one second of recomputation."),
        number("s per s", ge=0.01, le=1000, usual=(4, 12)),
    ] = 8.0

    def choose(self, request: InferenceRequest, view: FleetView, now: float, rng: Random) -> Choice:
        """Return the engine of lowest cost.

        β keeps prompts where their cache is. This alone would leave an engine idle for ever if it lost a prefix that
        almost all others hold. An idle engine computes the shared part at its plain price: no request waits for that,
        and later ones find the prefix there. The same applies to an engine that decodes far fewer answers than the
        holder of the longest match: a hot prefix spreads before its holder's answers are late.
        """
        loads = view.load_options(request, now) if view.nodes is not None else None
        prefills = Prefills(request, view, loads) if loads is not None and loads.groups else None
        roster, load = view.roster, view.load
        evaluated, others, blocks = _with_loads(request, view, prefills) if prefills else _evaluated(request, view)
        beta, salt, ready_at = self.beta, tie_salt(request), load.ready_at
        # Directly, because FleetView.decode_rates would be one more call per decision.
        rates = view.decode.rates(request, roster.decode_costs[roster.accepting[0]], alike=roster.decodes_alike)
        prompt_tokens = request.prompt_tokens
        per_answer_s, per_token_s, most_s = rates.per_answer_s, rates.per_token_s, rates.usual_s
        answers, contexts, room = load.answers, load.context_tokens, load.room_tokens
        most = answers[evaluated[0][0]] if blocks else 0
        few = blocks > 0 and others.bit_count() * FEW_OF <= len(roster.accepting)
        shares = roster.shares
        scored = []
        for item in evaluated:
            target, held, hit, compute = item
            wait = ready_at[target] - now
            wait = wait if wait > 0.0 else 0.0
            running = answers[target]
            decode, late, memory = running * per_answer_s + contexts[target] * per_token_s, 0.0, 0.0
            cost = beta * compute + wait + decode
            # Seldom: tokens would be late, memory lacks, or engines decode at different speeds.
            if decode > most_s or prompt_tokens - hit > room[target]:
                decode, late, memory = view.sharing_s(request, target, hit, rates, now)
                cost = beta * compute + wait + decode + late + memory
            if wait == 0.0 and (BUSIER * running + BY_ANSWERS < most or (few and not held and not running)):
                prefills = prefills or Prefills(request, view, None)
                # β-fold less (β − 1)-fold is the plain price.
                cost -= (beta - 1.0) * _plain_s(prefills, few, blocks, evaluated[0], item, rates.spread)
            if shares and target in shares:
                # Its share lowers its load, as if it were slower. No request computes for longer because of it, so that
                # time counts at the plain price: otherwise a full engine would win against new ones that are idle.
                cost -= (beta - 1.0) * (1.0 - shares[target]) * compute
            scored.append((cost, target ^ salt, wait, decode, late, memory, item))
        scored.sort()
        kept = [
            Candidate(roster.engine_ids[target], hit, wait, compute, cost, held, decode, late, memory)
            for cost, _, wait, decode, late, memory, (target, held, hit, compute) in scored[:KEPT]
        ]
        best = scored[0][-1]
        fetch = prefills.on(best[0], best[1]).fetch if loads is not None and prefills is not None else None
        return Choice(best[0], reasons.LEAST_COST if fetch is None else reasons.LOAD, tuple(kept), fetch, loads)


Evaluated = tuple[int, int, int, float]
"""An engine to score: target, its leading blocks, hit tokens, and seconds of the prefill."""


def _evaluated(request: InferenceRequest, view: FleetView) -> tuple[list[Evaluated], int, int]:
    """Return the engines to score, the non-holders, and the blocks that all holders have."""
    roster = view.roster
    alike, others = roster.alike, roster.accepting_mask
    evaluated: list[Evaluated] = []
    hit, compute, blocks = 0, 0.0, 0
    for blocks, mask in view.match(request).groups:
        others ^= mask
        known = False
        holders = mask
        while holders:
            low = holders & -holders
            holders ^= low
            target = low.bit_length() - 1
            if not known:
                hit = view.hit_tokens(request, target, blocks)
                compute = view.compute_s(request, target, hit)
                known = alike
            evaluated.append((target, blocks, hit, compute))
    known = False
    for target in _cheapest_by_adapter(request, view, others) if request.adapter else _cheapest_of(view, others):
        compute = compute if known else view.compute_s(request, target, 0)
        known = alike
        evaluated.append((target, 0, 0, compute))
    return evaluated, others, blocks


def _with_loads(request: InferenceRequest, view: FleetView, prefills: Prefills) -> tuple[list[Evaluated], int, int]:
    """Return the same if node managers hold part of the prompt.

    Engines that share a node load alike, so of those without cached blocks only the one with the shortest wait per node
    is evaluated.
    """
    others, held, blocks = view.roster.accepting_mask, [], 0
    for blocks, mask in view.match(request).groups:
        others &= ~mask
        held += [(target, blocks) for target in view.roster.accepting if mask >> target & 1]
    for mask in _by_home(view, others):
        held += [(target, 0) for target in _cheapest_by_adapter(request, view, mask)]
    priced = [(target, own, prefills.on(target, own)) for target, own in held]
    return [(target, own, prefill.hit_tokens, prefill.seconds) for target, own, prefill in priced], others, blocks


def _by_home(view: FleetView, others: int) -> list[int]:
    """Return the non-holders as one bitset per own node, in the order of the engine ids."""
    homes = view.nodes.homes if view.nodes is not None else {}
    masks: dict[str, int] = {}
    for target in view.roster.accepting:
        if others >> target & 1:
            home = homes.get(view.roster.engine_ids[target], "")
            masks[home] = masks.get(home, 0) | 1 << target
    return list(masks.values())


def _plain_s(
    prefills: Prefills,
    few: bool,
    shared: int,
    best: Evaluated,
    idle: Evaluated,
    spread: float,
) -> float:
    """Return how many seconds of an idle engine's prefill count at the plain price instead of β-fold.

    With `few`, engines without the prefix are rare, and those seconds are for its `shared` blocks. `best` is the
    evaluated holder of the longest match, `idle` the evaluated engine.
    """
    view, (target, held, _, seconds) = prefills.view, idle
    if few and not held and not view.load.in_flight_requests[target]:
        return max(0.0, seconds - prefills.on(target, shared).seconds)
    return _spreading(view, best[0], target, spread) * max(0.0, seconds - best[3])


def _spreading(view: FleetView, holder: int, target: int, spread: float) -> float:
    """Return how readily a prefix spreads from its holder to the target, 0..1: by how many fewer answers it decodes."""
    most = view.load.answers[holder]
    return spread * max(0.0, 1.0 - (BUSIER * view.load.answers[target] + BY_ANSWERS) / most) if most else 0.0


def _cheapest_by_adapter(request: InferenceRequest, view: FleetView, others: int) -> Sequence[int]:
    """Return the non-holders that can be cheapest with the request's adapter loaded, and those without."""
    return [target for part in view.by_adapter(request, others) for target in _cheapest_of(view, part)]


def _cheapest_of(view: FleetView, others: int) -> Sequence[int]:
    """Return the non-holders that can be cheapest: the one with the shortest wait, and the one with the fewest answers.

    None by answers if an engine outside `others` has the fewest.
    """
    least = _least_waiting(view, others)
    load = view.load
    answers, order = load.answers, load.answer_order
    if len(least) != 1 or not answers[least[0]]:
        return least
    if order is not None:
        fewest = order.first(others)
    else:
        fewest = answers.index(min(answers))
        accepting = view.roster.accepting_mask
        if not accepting >> fewest & 1:
            fewest = min(view.roster.accepting, key=answers.__getitem__)
        if not others >> fewest & 1:
            return least
    return least if fewest < 0 or answers[fewest] == answers[least[0]] else (*least, fewest)


def _least_waiting(view: FleetView, others: int) -> tuple[int, ...]:
    """Return the non-holders that can win: the one with the shortest wait, or all if speeds differ.

    Among idle engines it is the longest idle one, so that new prompts alternate over an idle fleet.
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
    # Without an interpreter step per target; the slow scan follows only where a holder is first.
    first = ready_at.index(min(ready_at))
    if others >> first & 1:
        return (first,)
    return (min((target for target in roster.accepting if others >> target & 1), key=ready_at.__getitem__),)
