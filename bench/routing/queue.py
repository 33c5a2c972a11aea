"""The cost of pull scheduling with 10,000 queued requests: `python -m bench.routing.queue --json OUT`.

An insertion adds one request to the pool's queue. A pull is a request for work by one of eight engines, including the
removal of its result. Half of the prompts share a prefix that two engines hold. It is measured when all can be on time
(the feasible set is largest) and in overload (most requests are infeasible).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from random import Random

from bench.report import Target, command_line, write_report
from routing.dispatch.request_queue import WaitingRoom
from routing.ledger.fleet_view import EngineFacts
from routing.ledger.reservations import Reservation
from routing.policy.policy_document import RoutingPolicy, Stage
from routing.router import Router
from routing.values.decision import CENTRAL, Decision
from routing.values.inference_request import InferenceRequest

REQUESTS, ENGINES, PULLS, INSERTIONS, GROUPS = 10_000, 8, 400, 2_000, 100
KEYS, BLOCK = 24, 512
POLICY = RoutingPolicy(placement=Stage(name="central"), order=Stage(name="late_binding"))
NO_DECISION = Decision("", "bench", "", 0, "central", "late_binding", 1, "", 0, 0, 0.0, 0.0, 0.0)


def requests(rng: Random, slo_s: float, groups: list[tuple[int, ...]]) -> Iterator[InferenceRequest]:
    """Yield prompts of up to 12,288 tokens indefinitely, one every 10 ms."""
    number = 0
    while True:
        number += 1
        shared = rng.choice(groups)[: rng.choice((0, 6, 12))]
        keys = shared + tuple(rng.getrandbits(64) for _ in range(rng.randrange(1, KEYS - len(shared))))
        yield InferenceRequest(f"request-{number:012}", keys, len(keys) * BLOCK, BLOCK, number * 0.01, slo_s)


def measure(slo_s: float) -> dict[str, float]:
    """Return the median and 99th percentile of an insertion and of a pull, in microseconds."""
    rng = Random(5)
    router = Router("bench", POLICY, 1)
    router.set_engines([EngineFacts(f"e-{number}", 1, True) for number in range(ENGINES)], 0.0)
    groups = [tuple(rng.getrandbits(64) for _ in range(KEYS)) for _ in range(GROUPS)]
    for group in groups:
        for engine in rng.sample(range(ENGINES), 2):
            router.blocks_stored(f"e-{engine}", group)
    room, coming = router.waiting, requests(rng, slo_s, groups)
    for _ in range(REQUESTS):
        _add(room, router, next(coming))
    room.pull(0, router.view, 1.0)
    inserted = [_add(room, router, next(coming)) for _ in range(INSERTIONS)]
    pulled = [_pull(room, router, number) for number in range(PULLS)]
    return {
        "insert_median_us": statistics.median(inserted),
        "insert_p99_us": sorted(inserted)[INSERTIONS * 99 // 100],
        "pull_median_us": statistics.median(pulled),
        "pull_p99_us": sorted(pulled)[PULLS * 99 // 100],
    }


def _add(room: WaitingRoom, router: Router, request: InferenceRequest) -> float:
    queued = Reservation(request, CENTRAL, router.view.compute_s(request, 0, 0), request.prompt_tokens)
    before = time.perf_counter_ns()
    room.add(queued, NO_DECISION)
    return (time.perf_counter_ns() - before) / 1000


def _pull(room: WaitingRoom, router: Router, number: int) -> float:
    target, at_s = number % ENGINES, 1.0 + number * 0.02
    router.view.load.ready_at[target] = at_s + 0.3
    before = time.perf_counter_ns()
    pick = room.pull(target, router.view, at_s)
    if pick is not None:
        room.dispatch(pick.queued.request.request_id, pick.queued.compute_s, at_s)
    return (time.perf_counter_ns() - before) / 1000


def main() -> None:
    """Measure and write the figures."""
    parser = command_line("queue", __doc__)
    path = parser.parse_args().json
    figures: dict[str, float] = {}
    for name, slo_s in (("all_feasible", 3600.0), ("overload", 5.0)):
        figures |= {f"{name}_{key}": round(value, 1) for key, value in measure(slo_s).items()}
    targets = {
        f"{name}_{key}": Target(value=figures[f"{name}_{key}"], op="<=", target=bound)
        for name in ("all_feasible", "overload")
        for key, bound in (("insert_median_us", 50.0), ("pull_median_us", 1000.0))
    }
    write_report("queue", figures, targets, path)


if __name__ == "__main__":
    main()
