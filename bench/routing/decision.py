"""The cost of one routing decision in process, for every placement: `python -m bench.routing.decision --json OUT`.

A decision is everything from a request with its keys to a reservation: prefix match on all engines, scores, choice,
decision value, and accounting. Requests have 24 block keys (12,288 tokens) whose first 6, 12, or 24 blocks are held by
two engines; two requests per engine are in flight.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from random import Random

from bench.report import Target, command_line, write_report
from routing.ledger.fleet_view import EngineFacts
from routing.policy.policy_document import RoutingPolicy, Stage
from routing.registry import CENTRAL_PLACEMENT
from routing.router import Router
from routing.values.inference_request import InferenceRequest
from routing.values.observation import Completed, FirstToken
from simulator.baselines.registry import PLACEMENTS

TARGETED = ("least_cost", "dual_map")
"""Placements that must decide within 10 µs. The others are for comparison."""

ORDERS = {CENTRAL_PLACEMENT: "late_binding"}
"""The order of a placement that does not work with the usual one. Immediate decisions do not use it."""

KEYS, BLOCK, GROUPS, ROUNDS, PER_ROUND = 24, 512, 200, 7, 3_000


def measure(placement: str, engines: int, count: int = ROUNDS) -> tuple[float, float]:
    """Return the median and 99th percentile of one decision, in microseconds (best round's median)."""
    order = ORDERS.get(placement, "late_last")
    policy = RoutingPolicy(placement=Stage(name=placement), order=Stage(name=order))
    router = Router("bench", policy, 1, placements=PLACEMENTS)
    router.set_engines([EngineFacts(f"e-{number:03}", 1, True) for number in range(engines)], 0.0)
    rng = Random(11)
    groups = [tuple(rng.getrandbits(64) for _ in range(KEYS)) for _ in range(GROUPS)]
    for group in groups:
        for engine in rng.sample(range(engines), 2):
            router.blocks_stored(f"e-{engine:03}", group)
    under_way: deque[str] = deque()
    rounds = [_round(router, groups, rng, under_way, start=number * PER_ROUND) for number in range(count)]
    return min(median for median, _ in rounds), min(tail for _, tail in rounds)


def _round(
    router: Router, groups: list[tuple[int, ...]], rng: Random, under_way: deque[str], start: int
) -> tuple[float, float]:
    took = []
    engines = len(router.view.roster.accepting)
    for number in range(start, start + PER_ROUND):
        now = number * 0.02
        group, shared = rng.choice(groups), rng.choice((6, 12, 24))
        keys = group[:shared] + tuple(rng.getrandbits(64) for _ in range(KEYS - shared))
        request = InferenceRequest(f"request-{number:012}", keys, KEYS * BLOCK, BLOCK, now, 5.0)
        before = time.perf_counter_ns()
        router.place(request, now, hold=False)
        took.append((time.perf_counter_ns() - before) / 1000)
        under_way.append(request.request_id)
        if len(under_way) > 2 * engines:
            router.observe(FirstToken(under_way[-engines]), now + 0.01)
            router.observe(Completed(under_way.popleft()), now + 0.015)
    return statistics.median(took), sorted(took)[len(took) * 99 // 100]


def main() -> None:
    """Measure all placements at 8, 32 and 256 engines."""
    parser = command_line("decision", __doc__)
    path = parser.parse_args().json
    figures: dict[str, float] = {}
    targets: dict[str, Target] = {}
    for engines in (8, 32, 256):
        for placement in PLACEMENTS:
            median, tail = measure(placement, engines)
            figures[f"{placement}_{engines}_engines_median_us"] = round(median, 2)
            figures[f"{placement}_{engines}_engines_p99_us"] = round(tail, 2)
            if engines <= 32 and placement in TARGETED:
                name = f"{placement}_{engines}_engines_median_us"
                targets[name] = Target(value=figures[name], op="<=", target=10.0)
    write_report("decision", figures, targets, path)


if __name__ == "__main__":
    main()
