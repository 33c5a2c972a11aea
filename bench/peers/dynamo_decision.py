"""One decision in process, compared with Dynamo's: `python -m bench.peers.dynamo_decision --json OUT`.

Alternating rounds on the same machine measure a prefix match of 24 blocks (ours on all targets, theirs by
RadixTree.find_matches with its scores), and a decision (ours is `Router.submit`: match, choice, decision, reservation;
theirs `SelectionService.select`, awaited, which reserves nothing). Each round is a median. Since the machine is shared,
the report quotes the quietest of at least five rounds for both sides, and the median of the rounds.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import time
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from bench.peers.dynamo_replay import REQUIREMENT
from bench.peers.environment import peer_python
from bench.peers.rounds import LEAST_ROUNDS, quietest_and_median, ratios
from bench.report import Target, command_line, write_report
from bench.routing.decision import measure
from kvstore.index.prefix_index import PrefixIndex
from routing.ledger.fleet_view import EngineFacts
from routing.policy.policy_document import RoutingPolicy, Stage
from routing.router import Router
from routing.values.inference_request import InferenceRequest

KEYS, ENGINES, GROUPS = 24, 32, 200
LONG_BLOCKS, LONG_BLOCK_TOKENS = 8192, 16
"""A prompt of 128k tokens in blocks of 16."""


def groups() -> list[tuple[int, ...]]:
    """Return the block hashes of the prompts that engines hold."""
    rng = Random(11)
    return [tuple(rng.getrandbits(62) for _ in range(KEYS)) for _ in range(GROUPS)]


def match_us(rounds: int) -> float:
    """Return the median of our match on all targets, in microseconds."""
    index, rng, held = PrefixIndex(), Random(1), groups()
    for group in held:
        for engine in rng.sample(range(ENGINES), 2):
            index.store(engine, group)
    among, took = (1 << ENGINES) - 1, []
    for _ in range(rounds):
        group = rng.choice(held)
        before = time.perf_counter_ns()
        index.match(group, among)
        took.append(time.perf_counter_ns() - before)
    return statistics.median(took) / 1000


def long_prompt_us(rounds: int = 200) -> float:
    """Return the median of a whole decision on a prompt of 128k tokens, in microseconds."""
    router = Router("bench", RoutingPolicy(placement=Stage(name="least_cost")), 1)
    router.set_engines([EngineFacts(f"e-{number:03}", 1, True) for number in range(ENGINES)], 0.0)
    rng = Random(3)
    keys = tuple(rng.getrandbits(64) for _ in range(LONG_BLOCKS))
    for number in range(0, ENGINES, 4):
        router.blocks_stored(f"e-{number:03}", keys[: rng.randrange(LONG_BLOCKS)])
    took = []
    for number in range(rounds):
        own = tuple(rng.getrandbits(64) for _ in range(64))
        request = InferenceRequest(
            f"request-{number}", keys[:-64] + own, LONG_BLOCKS * LONG_BLOCK_TOKENS, LONG_BLOCK_TOKENS, 0.0, 5.0
        )
        before = time.perf_counter_ns()
        router.place(request, number * 0.1, hold=False)
        took.append(time.perf_counter_ns() - before)
    return statistics.median(took) / 1000


def theirs(rounds: int) -> dict[str, float]:
    """Return Dynamo's medians. Raises RuntimeError if it cannot run."""
    python = peer_python("dynamo", REQUIREMENT).absolute()
    with TemporaryDirectory() as folder:
        asked = Path(folder) / "asked.json"
        asked.write_text(json.dumps({"groups": groups(), "engines": ENGINES, "rounds": rounds}))
        command = [python, Path(__file__).with_name("dynamo_selection.py"), asked]
        environment = {**os.environ, "DYN_LOG": "error"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, cwd=folder)
    if done.returncode:
        raise RuntimeError("Dynamo's selection failed:\n" + "\n".join(done.stderr.splitlines()[-5:]))
    medians: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return medians


def _round() -> dict[str, float]:
    """Return one round of both products."""
    return {f"dynamo_{name}": value for name, value in theirs(2000).items()} | {
        "match_us": match_us(4000),
        "dual_map_us": measure("dual_map", ENGINES, 1)[0],
        "least_cost_us": measure("least_cost", ENGINES, 1)[0],
    }


def main() -> None:
    """Measure in turn and write the report."""
    parser = command_line("dynamo_decision", __doc__)
    parser.add_argument("--rounds", type=int, default=LEAST_ROUNDS)
    options = parser.parse_args()
    times = quietest_and_median([_round() for _ in range(options.rounds)])
    times |= ratios(times, "match_us", "dynamo_match_us", "match_ratio")
    times |= ratios(times, "dual_map_us", "dynamo_select_us", "dual_map_ratio")
    times |= ratios(times, "least_cost_us", "dynamo_select_us", "least_cost_ratio")
    figures = {name: round(value, 3) for name, value in times.items()}
    figures["least_cost_1000_over_32"] = round(measure("least_cost", 1000)[0] / measure("least_cost", ENGINES)[0], 3)
    figures["long_prompt_us"] = round(long_prompt_us(), 1)
    targets = {
        "match_ratio": Target(value=figures["match_ratio"], op="<=", target=0.5),
        "dual_map_ratio": Target(value=figures["dual_map_ratio"], op="<=", target=0.1),
        "least_cost_ratio": Target(value=figures["least_cost_ratio"], op="<=", target=0.3),
        "least_cost_1000_over_32": Target(value=figures["least_cost_1000_over_32"], op="<=", target=3.0),
        "long_prompt_us": Target(value=figures["long_prompt_us"], op="<=", target=200.0),
    }
    write_report("dynamo_decision", figures, targets, options.json)


if __name__ == "__main__":
    main()
