"""Time Dynamo's prefix match and selection, and print medians as JSON. Runs in the peer's own interpreter.

Argument: a JSON file with `groups` (lists of block hashes), `engines` and `rounds`.
"""

import asyncio
import json
import random
import statistics
import sys
import time
from pathlib import Path


def match_us(groups: list[list[int]], engines: int, rounds: int) -> float:
    """Return the median of one prefix match with its scores, in microseconds."""
    from dynamo._core import RadixTree

    tree, rng, number = RadixTree(), random.Random(1), 0
    for group in groups:
        for engine in rng.sample(range(engines), 2):
            number += 1
            blocks = [{"block_hash": item, "tokens_hash": item} for item in group]
            event = {"event_id": number, "data": {"stored": {"parent_hash": None, "blocks": blocks}}}
            tree.apply_event(engine, json.dumps(event).encode())
    took = []
    for _ in range(rounds):
        group = rng.choice(groups)
        before = time.perf_counter_ns()
        tree.find_matches(group, False).scores  # noqa: B018 - reading the scores is part of what is timed
        took.append(time.perf_counter_ns() - before)
    return statistics.median(took) / 1000


async def select_us(groups: list[list[int]], engines: int, rounds: int) -> float:
    """Return the median of one awaited selection among idle workers, in microseconds."""
    from dynamo._core import SelectionService

    service, rng = SelectionService(indexer_threads=1), random.Random(1)
    for engine in range(engines):
        await service.upsert_worker(
            {
                "worker_id": engine,
                "model_name": "bench",
                "endpoint": f"http://127.0.0.1:{19000 + engine}",
                "kv_events_endpoint": f"tcp://127.0.0.1:{20000 + engine}",
                "block_size": 512,
                "total_kv_blocks": 2048,
                "max_num_batched_tokens": 8192,
            }
        )
    took = []
    for _ in range(rounds):
        group = rng.choice(groups)
        request = {
            "model_name": "bench",
            "block_hashes": group,
            "sequence_hashes": group,
            "isl_tokens": 512 * len(group),
        }
        before = time.perf_counter_ns()
        await service.select(request)
        took.append(time.perf_counter_ns() - before)
    service.shutdown()
    return statistics.median(took) / 1000


def main() -> None:
    """Print both medians."""
    asked = json.loads(Path(sys.argv[1]).read_text())
    groups, engines, rounds = asked["groups"], asked["engines"], asked["rounds"]
    medians = {
        "match_us": match_us(groups, engines, rounds),
        "select_us": asyncio.run(select_us(groups, engines, rounds)),
    }
    print(json.dumps(medians))


if __name__ == "__main__":
    main()
